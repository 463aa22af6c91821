"""Arguments of tools on a command line: words become values as the tool's schema says.

`days=3` is a number where the schema has one and text where it has text. `days:=3` is JSON whatever the
schema says, a word that begins with `{` is a whole object, and `-` reads one from stdin. A name that is
there twice, or a value with commas, is a list where the schema has one. `trip.days=3` is a member of
`trip`.
"""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.schema_text import members, parameters_of, type_name
from mcpearl.runtime.arguments import did_you_mean

_DEPTH = 32  # references of a schema that are followed
_YES = dict.fromkeys(("true", "yes", "y", "on", "1"), True)
_NO = dict.fromkeys(("false", "no", "n", "off", "0"), False)


class _Misfit(ValueError):
    """A word that is not a value of the schema."""


def read_arguments(words: Iterable[str], schema: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the arguments that the words stand for, as the schema has them.

    Args:
        words: `name=value`, `name:=json`, `{…}` or `-`.
        schema: the input schema.
        what: what is called, for messages.
    """
    found: dict[str, Any] = {}
    texts: dict[str, list[str]] = {}
    for word in words:
        if word == "-" or word.startswith("{"):
            found |= _object(sys.stdin.read() if word == "-" else word)
            continue
        name, has, value = word.partition("=")
        if not has:
            raise CommandFailed(
                f"{word!r} is not an argument of {what}",
                Exit.USAGE,
                f"write name=value, name:=JSON, or a JSON object; it takes: {_usage(schema)}",
            )
        if name.endswith(":"):
            path, _ = _place(name[:-1], schema, schema, what)
            _put(found, path, _json(name[:-1], value), what)
        else:
            texts.setdefault(name, []).append(value)
    for name, values in texts.items():
        path, own = _place(name, schema, schema, what)
        _put(found, path, _value(name, values, own, schema, what), what)
    _refuse_unknown(found, schema, what)
    _refuse_missing(found, schema, what)
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"the arguments are not JSON: {error}", Exit.USAGE) from None
    if not isinstance(value, dict):
        raise CommandFailed(f"the arguments are a JSON object, not {text[:80]!r}", Exit.USAGE)
    return value


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"{name}:={text} is not JSON: {error}", Exit.USAGE) from None


def _place(name: str, schema: Any, root: dict[str, Any], what: str) -> tuple[list[str], Any]:
    """Return the path to an argument and its schema: `trip.days` is a member of an argument `trip`."""
    known = _members(schema, root)
    head, dot, rest = name.partition(".")
    if name in known or not dot or head not in known:
        return [name], known.get(name, True)
    inner = known[head]
    names = _members(inner, root)
    if names and rest.partition(".")[0] not in names:
        hint = did_you_mean(rest, names)
        takes = f"`{head}` takes: {parameters_of(object_of(inner, root))}"
        raise CommandFailed(f"{what} has no argument {name!r}{hint}", Exit.USAGE, takes)
    path, own = _place(rest, inner, root, what)
    return [head, *path], own


def _put(found: dict[str, Any], path: list[str], value: Any, what: str) -> None:
    *outer, last = path
    for name in outer:
        found = found.setdefault(name, {})
        if not isinstance(found, dict):
            raise CommandFailed(
                f"{'.'.join(path)} does not fit {what}: {name} is not an object", Exit.USAGE
            )
    found[last] = value


def object_of(schema: Any, root: dict[str, Any]) -> Any:
    """Return the first alternative of a schema that is an object with members."""
    return next((each for each in _alternatives(schema, root) if members(each)), None)


def _members(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    return members(object_of(schema, root))


def _refuse_unknown(found: dict[str, Any], schema: dict[str, Any], what: str) -> None:
    known = members(schema)
    if schema.get("additionalProperties") or schema.get("patternProperties"):
        return
    for name in found:
        if name not in known:
            hint = did_you_mean(name, known)
            takes = f"it takes: {_usage(schema)}" if known else "it takes no arguments"
            raise CommandFailed(f"{what} has no argument {name!r}{hint}", Exit.USAGE, takes)


def _refuse_missing(found: dict[str, Any], schema: dict[str, Any], what: str) -> None:
    required = schema.get("required")
    missing = [each for each in required if each not in found] if isinstance(required, list) else []
    if missing:
        raise CommandFailed(
            f"{what} needs {', '.join(map(str, missing))}",
            Exit.USAGE,
            f"it takes: {_usage(schema)}",
        )


def _usage(schema: dict[str, Any]) -> str:
    """Return the parameters of a schema, and the members of those that are objects."""
    lines = [parameters_of(schema) or "nothing"]
    for name, own in members(schema).items():
        if inner := object_of(own, schema):
            lines.append(f"{name} has: {parameters_of(inner)}")
    return "; ".join(lines)


def _value(name: str, values: list[str], own: Any, schema: dict[str, Any], what: str) -> Any:
    try:
        if len(values) > 1:
            return [coerce(each, _items(own, schema), schema) for each in values]
        return coerce(values[0], own, schema)
    except _Misfit as error:
        raise CommandFailed(
            f"{name}={values[0]} does not fit {what}: {error}", Exit.USAGE
        ) from None


def _items(schema: Any, root: dict[str, Any]) -> Any:
    """Return what the items of a list are."""
    for each in _alternatives(schema, root):
        if not isinstance(each, dict) or "type" not in each or each["type"] == "array":
            return each.get("items", True) if isinstance(each, dict) else True
    raise _Misfit("it is there twice, and is not a list")


def coerce(text: str, schema: Any, root: dict[str, Any]) -> Any:
    """Return the value that a text stands for under a schema.

    Args:
        text: what was typed.
        schema: what the value should be.
        root: the schema that references are looked up in.
    """
    options = _alternatives(schema, root)
    wrong: _Misfit | None = None
    # Text is taken by a string in any case, so that a string is the last resort.
    for each in sorted(options, key=_accepts_any_text):
        try:
            return _coerced(text, each, root)
        except _Misfit as error:
            wrong = wrong or error
    raise wrong or _Misfit("nothing fits the schema")


def _accepts_any_text(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind == "string" and "enum" not in schema and "const" not in schema


def _alternatives(schema: Any, root: dict[str, Any], depth: int = 0) -> list[Any]:
    """Return the schemas of which a value may fit one: references and unions are resolved."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return [schema]
    if isinstance(reference := schema.get("$ref"), str):
        return _alternatives(_resolved(reference, root), root, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(word), list) and options:
            if word == "allOf" and len(options) > 1:
                return [schema]
            return [one for each in options for one in _alternatives(each, root, depth + 1)]
    if isinstance(kinds := schema.get("type"), list):
        return [{**schema, "type": kind} for kind in kinds]
    return [schema]


def _resolved(reference: str, root: dict[str, Any]) -> Any:
    value: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _coerced(text: str, schema: Any, root: dict[str, Any]) -> Any:
    if not isinstance(schema, dict):
        return _loose(text)
    if isinstance(options := schema.get("enum"), list):
        return _chosen(text, options)
    if "const" in schema:
        return _chosen(text, [schema["const"]])
    reader = _READERS.get(str(schema.get("type")))
    if reader is None:
        return _loose(text)
    return reader(text, schema, root)


def _chosen(text: str, options: list[Any]) -> Any:
    for each in options:
        if text == (each if isinstance(each, str) else json.dumps(each)):
            return each
    shown = ", ".join(map(str, options[:20]))
    raise _Misfit(f"it must be one of {shown}{did_you_mean(text, map(str, options))}")


def _loose(text: str) -> Any:
    """Read text as JSON if it is that, otherwise as it stands."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(text: str, schema: Any, root: Any) -> str:
    return text


def _integer(text: str, schema: Any, root: Any) -> int:
    try:
        return int(text)
    except ValueError:
        raise _Misfit("it must be a whole number") from None


def _number(text: str, schema: Any, root: Any) -> float:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        raise _Misfit("it must be a number") from None


def _boolean(text: str, schema: Any, root: Any) -> bool:
    value = {**_YES, **_NO}.get(text.lower())
    if value is None:
        raise _Misfit("it must be true or false")
    return value


def _null(text: str, schema: Any, root: Any) -> None:
    if text not in ("null", ""):
        raise _Misfit("it must be null")


def _list(text: str, schema: Any, root: dict[str, Any]) -> Any:
    if text.startswith("["):
        return _parsed(text, list, "a list")
    items = schema.get("items", True)
    return [coerce(each.strip(), items, root) for each in text.split(",")] if text else []


def _mapping(text: str, schema: Any, root: Any) -> Any:
    return _parsed(text, dict, f"a JSON object ({type_name(schema)})")


def _parsed(text: str, kind: type, shown: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _Misfit(f"it must be {shown}: {error}") from None
    if not isinstance(value, kind):
        raise _Misfit(f"it must be {shown}")
    return value


_READERS: dict[str, Callable[[str, Any, dict[str, Any]], Any]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
    "array": _list,
    "object": _mapping,
}
