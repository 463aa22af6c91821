"""Words error messages about values so that a model can correct itself.

msgspec stops at the first mismatch and names Python types. This module translates its errors into
JSON terms, with the path and the received value, and combines all errors of one call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import msgspec
from msgspec import Struct

from mcpearl.schema.errors import ArgumentsError

__all__ = [
    "UnfitArgument",
    "arguments_error",
    "describe",
    "json_type",
    "not_finite",
    "path_text",
    "shown",
]

_LONGEST = 60

_WORDS = {
    "int": "integer",
    "str": "string",
    "float": "number",
    "bool": "boolean",
    "decimal": "number or decimal string",
    "datetime": "date-time string",
    "date": "date string",
    "time": "time string",
    "duration": "duration string",
    "uuid": "UUID string",
    "bytes": "base64 string",
}


class UnfitArgument(Struct, frozen=True):
    """An argument that does not fit, and why."""

    argument: str
    text: str


def arguments_error(
    missing: Sequence[str],
    unknown: Sequence[str],
    problems: Sequence[UnfitArgument],
    allowed: Iterable[str],
) -> ArgumentsError:
    """Combine everything that is wrong with a call's arguments in one error."""
    said = []
    if missing:
        said.append(f"missing required {_plural(missing)} {_quoted(missing)}")
    if unknown:
        known = _quoted(allowed)
        hint = f"allowed: {known}" if known else "it takes none"
        said.append(f"unknown {_plural(unknown)} {_quoted(unknown)} ({hint})")
    said += [problem.text for problem in problems]
    first = [*missing, *(problem.argument for problem in problems), *unknown]
    return ArgumentsError("; ".join(said), first[0] if first else None)


def describe(error: msgspec.ValidationError, name: str, value: Any, schema: Any) -> str:
    """Describe msgspec's error about the argument `name` in JSON terms."""
    what, key, steps = _read(str(error))
    place = f"`{name}{''.join(steps)}`"
    if key:
        place = f"{place} (a key of it)"
    what, _, got = what.partition(", got `")
    came = None if key else _shown_at(value, steps)
    if came is None and got:
        came = _WORDS.get(got.rstrip("`"), got.rstrip("`"))
    if what.startswith("Invalid enum value"):
        options = [option for enum in _found_at(schema, steps, "enum") for option in enum]
        if options:
            what = f"Expected one of {', '.join(shown(option, bare=True) for option in options)}"
    if "matching regex" in what and (patterns := _found_at(schema, steps, "pattern")):
        what = f"Expected `str` matching the pattern {shown(patterns[0], bare=True)}"
    what = re.sub("^Expected `([^`]*)`", lambda match: f"Expected {_in_json(match[1])}", what)
    what = what[0].lower() + what[1:]
    suffix = f", got {came}" if came is not None and "missing required" not in what else ""
    return f"{place}: {what}{suffix}"


def not_finite(value: Any) -> str | None:
    """Describe the first number in a result that JSON does not have; None if there is none."""

    def find(value: Any, path: tuple[str | int, ...]) -> str | None:
        if isinstance(value, float):
            if isfinite(value):
                return None
            return (
                f"`{path_text(path)}`: {value} has no JSON form; return None instead, with "
                "`float | None` as its annotation"
            )
        items: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list | tuple):
            items = enumerate(value)
        return next((said for key, each in items if (said := find(each, (*path, key)))), None)

    try:
        return find(msgspec.to_builtins(value, enc_hook=_fields_of, order=None), ("result",))
    except (TypeError, ValueError, RecursionError):
        return None


def _fields_of(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return str(value) if dump is None else dump()


def _read(text: str) -> tuple[str, str, list[str]]:
    """Split msgspec's error into what is wrong, whether it is in a key, and the path.

    A value that is decoded by a hook has a path of its own, in front of the path to the value.
    """
    what, *places = text.split(" - at ")
    found, steps = "", []
    for place in reversed(places):
        key, _, path = place.rpartition(" in ")
        found = found or key
        steps += [step for step in re.split(_STEP, path.strip("`").removeprefix("$")) if step]
    return what, found, steps


def shown(value: Any, *, bare: bool = False) -> str:
    """Return a value as messages show it: its JSON type and its JSON, shortened."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    kind = json_type(value)
    return text if bare or kind in ("null", "boolean") else f"{kind} {text}"


def json_type(value: Any) -> str:
    """Return the name of a value's JSON type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case list() | tuple() | set() | frozenset():
            return "array"
        case _:
            return type(value).__name__


def path_text(path: Iterable[str | int]) -> str:
    """Format a path, for example `points[0].x`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


_STEP = r"(\[[^\]]*\]|\.[^.\[]+)"


def _shown_at(value: Any, steps: list[str]) -> str | None:
    try:
        for step in steps:
            value = value[int(step[1:-1])] if step[0] == "[" else value[step[1:]]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return shown(value)


def _found_at(root: Any, steps: list[str], keyword: str) -> list[Any]:
    """Return the values of a keyword at a place in a schema, if the place can be found."""

    def followed(schema: Any) -> list[dict[str, Any]]:
        """Return the schema with references and alternatives resolved."""
        if not isinstance(schema, dict):
            return []
        if "$ref" in schema:
            return followed(root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2]))
        return [schema, *(part for each in schema.get("anyOf", ()) for part in followed(each))]

    def stepped(schema: dict[str, Any], step: str) -> Any:
        if step[0] == ".":
            return schema.get("properties", {}).get(step[1:])
        if step == "[...]":
            return schema.get("additionalProperties", schema.get("items"))
        index, prefix = int(step[1:-1]), schema.get("prefixItems", ())
        return prefix[index] if index < len(prefix) else schema.get("items")

    here = followed(root)
    for step in steps:
        here = [part for schema in here for part in followed(stepped(schema, step))]
    return [schema[keyword] for schema in here if keyword in schema]


def _in_json(types: str) -> str:
    return " or ".join(_WORDS.get(word, word) for word in types.split(" | "))


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _plural(names: Sequence[str]) -> str:
    return "argument" if len(names) == 1 else "arguments"
