"""What a changed offer of a server means for its callers: what breaks them, and what does not.

A caller breaks if input that was accepted before is refused now, or if output is possible now that was
not possible before.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

_DEEPEST = 20  # schemas may refer to themselves
_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("pattern", "format", "multipleOf", "const", "uniqueItems", "propertyNames", "not")
_WORDS = ("title", "description", "default", "examples", "deprecated")
_ALL_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


class Change(NamedTuple):
    """One difference between two offers."""

    breaking: bool
    """Whether a caller that was right before may be wrong now."""
    where: str
    """What it concerns, such as "tool `add`, argument `a`"."""
    what: str


def compare_offers(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return how two offers differ, as `offer_of` returns them.

    Args:
        before: What was offered.
        after: What is offered now.
    """
    return [
        *_capabilities(before.get("capabilities") or {}, after.get("capabilities") or {}),
        *_members(before, after, ("instructions", "server"), "the server"),
        *_collection(before, after, "tools", "tool", _tool),
        *_collection(before, after, "prompts", "prompt", _prompt),
        *_collection(before, after, "resources", "resource", _resource),
        *_collection(before, after, "resourceTemplates", "resource template", _resource),
    ]


def _capabilities(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    for name in before.keys() - after.keys():
        yield Change(True, "the server", f"it no longer has the capability `{name}`")
    for name in after.keys() - before.keys():
        yield Change(False, "the server", f"it has the capability `{name}` now")
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            said = f"the capability `{name}` is {_json(after[name])}, not {_json(before[name])}"
            yield Change(False, "the server", said)


def _collection(
    before: dict[str, Any], after: dict[str, Any], kind: str, noun: str, compare: Any
) -> Iterator[Change]:
    old, new = before.get(kind) or {}, after.get(kind) or {}
    for name in sorted(old.keys() | new.keys()):
        where = f"{noun} `{name}`"
        if name not in new:
            yield Change(True, where, "it is gone")
        elif name not in old:
            yield Change(False, where, "it is new")
        elif old[name] != new[name]:
            yield from compare(old[name], new[name], where)


def _members(
    before: dict[str, Any], after: dict[str, Any], names: Any, where: str
) -> Iterator[Change]:
    for name in names:
        if before.get(name) != after.get(name):
            yield Change(False, where, f"its {name} is different")


def _tool(before: dict[str, Any], after: dict[str, Any], where: str) -> Iterator[Change]:
    told = set(before) | set(after)
    yield from _members(before, after, sorted(told - {"inputSchema", "outputSchema"}), where)
    old, new = before.get("inputSchema") or {}, after.get("inputSchema") or {}
    yield from _Input(old, new, "argument").compare(old, new, where)
    old, new = before.get("outputSchema"), after.get("outputSchema")
    if old is not None and new is None:
        yield Change(True, where, "it no longer has structured content")
    elif old is None and new is not None:
        yield Change(False, where, "it has structured content now")
    elif old != new and old is not None and new is not None:
        yield from _OutputChanges(old, new, "member").compare(old, new, f"{where}, result")


def _prompt(before: dict[str, Any], after: dict[str, Any], where: str) -> Iterator[Change]:
    told = set(before) | set(after)
    yield from _members(before, after, sorted(told - {"arguments"}), where)
    old = {each["name"]: each for each in before.get("arguments") or ()}
    new = {each["name"]: each for each in after.get("arguments") or ()}
    for name in sorted(old.keys() | new.keys()):
        was, is_now = old.get(name), new.get(name)
        place = f"{where}, argument `{name}`"
        if is_now is None:
            yield Change(True, place, "it is gone")
        elif was is None:
            needed = bool(is_now.get("required"))
            yield Change(needed, place, f"it is new{' and required' if needed else ''}")
        elif bool(was.get("required")) != bool(is_now.get("required")):
            needed = bool(is_now.get("required"))
            yield Change(needed, place, "it is required now" if needed else "it is optional now")
        elif was != is_now:
            yield Change(False, place, "its description is different")


def _resource(before: dict[str, Any], after: dict[str, Any], where: str) -> Iterator[Change]:
    told = set(before) | set(after)
    yield from _members(before, after, sorted(told - {"mimeType"}), where)
    if before.get("mimeType") != after.get("mimeType"):
        what = f"its type is {after.get('mimeType')}, and was {before.get('mimeType')}"
        yield Change(True, where, what)


class _Schemas:
    """Compares two schemas that each may refer to parts of themselves."""

    # True for input, where accepting less breaks callers; False for output, where allowing more does.
    narrowing_breaks: bool

    def __init__(self, before: dict[str, Any], after: dict[str, Any], noun: str) -> None:
        self._before = before
        self._after = after
        self._noun = noun
        self._compared: set[tuple[str, str]] = set()  # references: a schema may be a part of itself

    def compare(self, before: Any, after: Any, where: str, depth: int = 0) -> Iterator[Change]:
        """Yield how a schema differs from what it was."""
        references = _reference(before), _reference(after)
        if depth > _DEEPEST or references in self._compared:
            return
        if references != ("", ""):
            self._compared.add(references)
        old, new = _resolved(before, self._before), _resolved(after, self._after)
        yield from self._types(old, new, where)
        yield from self._values(old, new, where)
        yield from self._bounds(old, new, where)
        yield from self._properties(old, new, where, depth)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
                yield from self.compare(old[key], new[key], f"{where}, items", depth + 1)
            elif old.get(key, True) != new.get(key, True):
                closed = new.get(key, True) is False or isinstance(new.get(key), dict)
                yield self._passes(not closed, where, f"`{key}` is {_json(new.get(key, True))} now")
        for name in _WORDS:
            if old.get(name) != new.get(name):
                yield Change(False, where, f"its {name} is different")

    def _passes(self, more: bool, where: str, what: str) -> Change:
        return Change(more is not self.narrowing_breaks, where, what)

    def _types(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[Change]:
        was, is_now = _alternatives(old, self._before), _alternatives(new, self._after)
        if was is None or is_now is None:
            if old.get("anyOf") != new.get("anyOf") or old.get("oneOf") != new.get("oneOf"):
                yield self._passes(False, where, "its alternatives are different")
            return
        # A number may be an integer.
        for gone in sorted(was - is_now - ({"integer"} if "number" in is_now else set())):
            yield self._passes(False, where, f"it cannot be {_a(gone)} any more")
        for added in sorted(is_now - was - ({"integer"} if "number" in was else set())):
            yield self._passes(True, where, f"it can be {_a(added)} now")

    def _values(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[Change]:
        was, is_now = old.get("enum"), new.get("enum")
        if was == is_now:
            return
        if was is None or is_now is None:
            said = "any value" if is_now is None else f"only {', '.join(map(_json, is_now))}"
            yield self._passes(is_now is None, where, f"it can be {said} now")
            return
        for value in was:
            if value not in is_now:
                yield self._passes(False, where, f"it cannot be {_json(value)} any more")
        for value in is_now:
            if value not in was:
                yield self._passes(True, where, f"it can be {_json(value)} now")

    def _bounds(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[Change]:
        for name in (*_LEAST, *_MOST, *_EXACT):
            was, is_now = old.get(name), new.get(name)
            if was == is_now:
                continue
            if name in _EXACT or was is None or is_now is None:
                more = is_now is None
            else:
                more = is_now < was if name in _LEAST else is_now > was
            said = "has no value any more" if is_now is None else f"is {_json(is_now)}"
            yield self._passes(more, where, f"`{name}` {said}, and was {_json(was)}")

    def _properties(
        self, old: dict[str, Any], new: dict[str, Any], where: str, depth: int
    ) -> Iterator[Change]:
        was, is_now = old.get("properties") or {}, new.get("properties") or {}
        needed_before, needed = set(old.get("required") or ()), set(new.get("required") or ())
        for name in sorted(was.keys() | is_now.keys()):
            place = f"{where}, {self._noun} `{name}`"
            if name not in is_now:
                yield Change(True, place, "it is gone")
            elif name not in was:
                required = name in needed
                said = "it is new and required" if required else "it is new"
                yield Change(required and self.narrowing_breaks, place, said)
            else:
                if (name in needed) != (name in needed_before):
                    said = "it is required now" if name in needed else "it is optional now"
                    yield self._passes(name not in needed, place, said)
                yield from self.compare(was[name], is_now[name], place, depth + 1)


class _Input(_Schemas):
    narrowing_breaks = True


class _OutputChanges(_Schemas):
    narrowing_breaks = False


def _reference(schema: Any) -> str:
    return str(schema.get("$ref", "")) if isinstance(schema, dict) else ""


def _resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference followed."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = root
        for part in reference[2:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            found = found.get(part) if isinstance(found, dict) else None
        rest = {name: value for name, value in schema.items() if name != "$ref"}
        schema = {**found, **rest} if isinstance(found, dict) else rest
    return {}


def _alternatives(schema: dict[str, Any], root: dict[str, Any]) -> set[str] | None:
    """Return the types a value may have; None if alternatives differ in more than their type."""
    for key in ("anyOf", "oneOf"):
        if key in schema:
            found: set[str] = set()
            for each in schema[key]:
                inner = _resolved(each, root)
                if not inner.keys() <= {"type", "title", "description"}:
                    return None
                found |= _type_names(inner)
            return found
    return _type_names(schema)


def _type_names(schema: dict[str, Any]) -> set[str]:
    named = schema.get("type")
    if named is None:
        return set(_ALL_TYPES)
    return {named} if isinstance(named, str) else set(named)


def _a(kind: str) -> str:
    if kind == "null":
        return "null"
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
