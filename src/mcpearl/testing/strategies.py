"""Hypothesis strategies from JSON Schemas: arguments that fit a schema, and arguments that do not.

They know what servers publish for their tools. What they do not know of a schema is left to its
validator, which drops examples that do not fit.
"""

import base64
import datetime
import json
import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from mcpearl.schema import SchemaMismatch, compile_schema

JsonStrategy = st.SearchStrategy[Any]

_WHOLE = 2**53 - 1  # up to here, every JSON library reads an integer as it is written
_LONGEST = 20  # items, members or characters beyond the least
# All characters but surrogates, as ranges: by category, Hypothesis would need seconds in a new directory.
_CHARACTERS = st.characters(max_codepoint=0xD7FF, exclude_categories=()) | st.characters(
    min_codepoint=0xE000, exclude_categories=()
)
_TEXT = st.text(_CHARACTERS, max_size=_LONGEST)
_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-_WHOLE, _WHOLE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_LATER = datetime.datetime(1970, 1, 1)

_FORMATS: dict[str, JsonStrategy] = {
    "date-time": st.datetimes(_LATER, timezones=st.just(datetime.UTC)).map(lambda t: t.isoformat()),
    "date": st.dates(datetime.date(1, 1, 1)).map(lambda day: day.isoformat()),
    "time": st.times(timezones=st.just(datetime.UTC)).map(lambda t: t.isoformat()),
    "duration": st.integers(0, 10**6).map(lambda seconds: f"PT{seconds}S"),
    "uuid": st.uuids().map(str),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    "email": st.from_regex(r"[a-z][a-z0-9]{0,8}@[a-z]{1,8}\.example", fullmatch=True),
    "uri": st.from_regex(r"https://[a-z]{1,8}\.example/[a-z0-9]{0,8}", fullmatch=True),
    "hostname": st.from_regex(r"[a-z]{1,8}\.example", fullmatch=True),
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "path": st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}", fullmatch=True),
}


def fitting(schema: dict[str, Any]) -> JsonStrategy:
    """Return a strategy for values that fit a schema.

    Args:
        schema: The schema, such as the input schema of a tool.
    """
    return _Maker(schema).make(schema).filter(_fits(schema))


def unfitting(schema: dict[str, Any]) -> JsonStrategy:
    """Return a strategy for arguments that do not fit a schema, and are wrong in a single place.

    Args:
        schema: The input schema of a tool.
    """
    fits = _fits(schema)
    properties: dict[str, Any] = schema.get("properties") or {}
    required = [name for name in schema.get("required") or () if name in properties]
    ways = [st.sampled_from(required).map(_without)] if required else []
    if properties:
        names = st.sampled_from(sorted(properties))
        ways.append(names.map(_as_text))
        ways.append(st.tuples(names, _ANYTHING).map(lambda found: _with(*found)))
    ways.append(
        st.tuples(_TEXT.filter(lambda name: name not in properties), _ANYTHING).map(
            lambda found: _with(*found)
        )
    )
    return (
        st.tuples(fitting(schema), st.one_of(ways))
        .map(lambda both: both[1](both[0]))
        .filter(lambda value: not fits(value))
    )


def _without(name: str) -> Callable[[Any], Any]:
    return lambda value: {key: each for key, each in value.items() if key != name}


def _as_text(name: str) -> Callable[[Any], Any]:
    """Return a function that writes one argument as JSON text, a mistake that models make."""
    return lambda value: {**value, name: json.dumps(value.get(name))}


def _with(name: str, wrong: Any) -> Callable[[Any], Any]:
    return lambda value: {**value, name: wrong}


def _fits(schema: dict[str, Any]) -> Callable[[Any], bool]:
    validator = compile_schema(schema, where="the schema")

    def fits(value: Any) -> bool:
        try:
            validator.check(value)
        except SchemaMismatch:
            return False
        return True

    return fits


class _Maker:
    """Makes strategies for the parts of one schema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._named: dict[str, JsonStrategy] = {}  # by reference

    def make(self, schema: Any) -> JsonStrategy:
        if not isinstance(schema, dict):
            return _ANYTHING if schema is not False else st.nothing()
        if "$ref" in schema:
            return self._referred(schema)
        if "const" in schema:
            return st.just(schema["const"])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                rest = {name: each for name, each in schema.items() if name != key}
                return st.one_of([self.make(_merged(rest, each)) for each in schema[key]])
        if "allOf" in schema:
            whole = {name: each for name, each in schema.items() if name != "allOf"}
            for each in schema["allOf"]:
                whole = _merged(whole, self._followed(each))
            return self.make(whole)
        return self._typed(schema)

    def _referred(self, schema: dict[str, Any]) -> JsonStrategy:
        reference = schema["$ref"]
        if len(schema) > 1 and (schema.keys() - {"$ref", "title", "description", "default"}):
            rest = {name: each for name, each in schema.items() if name != "$ref"}
            return self.make(_merged(self._followed({"$ref": reference}), rest))
        if reference not in self._named:
            # A schema may be a part of itself.
            self._named[reference] = st.deferred(
                lambda: self.make(self._followed({"$ref": reference}))
            )
        return self._named[reference]

    def _followed(self, schema: Any) -> dict[str, Any]:
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            return schema if isinstance(schema, dict) else {}
        found: Any = self._root
        for part in reference.removeprefix("#").removeprefix("/").split("/"):
            if part:
                part = part.replace("~1", "/").replace("~0", "~")
                found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def _typed(self, schema: dict[str, Any]) -> JsonStrategy:
        kinds = schema.get("type")
        if kinds is None:
            if "properties" in schema:
                return self._object(schema)
            return self._array(schema) if "items" in schema else _ANYTHING
        makers: dict[str, Callable[[dict[str, Any]], JsonStrategy]] = {
            "null": lambda _: st.none(),
            "boolean": lambda _: st.booleans(),
            "integer": _integer,
            "number": _number,
            "string": _string,
            "array": self._array,
            "object": self._object,
        }
        names = [kinds] if isinstance(kinds, str) else kinds
        return st.one_of([makers[name](schema) for name in names if name in makers])

    def _array(self, schema: dict[str, Any]) -> JsonStrategy:
        first = [self.make(each) for each in schema.get("prefixItems") or ()]
        least = max(0, schema.get("minItems", 0) - len(first))
        most = schema.get("maxItems", len(first) + least + 5) - len(first)
        rest = schema.get("items", True)
        if first and (rest is False or most <= 0):
            return st.tuples(*first).map(list)
        unique = repr if schema.get("uniqueItems") else None
        items = self.make(rest)
        more = st.lists(items, min_size=least, max_size=max(least, most), unique_by=unique)
        if not first:
            return more
        return st.tuples(st.tuples(*first), more).map(lambda both: [*both[0], *both[1]])

    def _object(self, schema: dict[str, Any]) -> JsonStrategy:
        properties = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        needed = {name: self.make(properties.get(name, True)) for name in sorted(required)}
        optional = {
            name: self.make(each) for name, each in properties.items() if name not in required
        }
        known = st.fixed_dictionaries(needed, optional=optional)
        further = schema.get("additionalProperties", True)
        least = schema.get("minProperties", 0)
        if further is False or (further is True and properties and least <= len(properties)):
            return known
        names = self.make({"type": "string", **(schema.get("propertyNames") or {})})
        size = max(0, least - len(properties))
        most = schema.get("maxProperties", size + 3)
        rest = st.dictionaries(names, self.make(further), min_size=size, max_size=max(size, most))
        return st.tuples(rest, known).map(lambda both: {**both[0], **both[1]})


def _merged(one: dict[str, Any], other: Any) -> dict[str, Any]:
    """Return two schemas merged into one; objects that both have are merged member by member."""
    if not isinstance(other, dict):
        return one
    merged = {**one, **other}
    for name in ("properties", "$defs"):
        if isinstance(one.get(name), dict) and isinstance(other.get(name), dict):
            merged[name] = {**one[name], **other[name]}
    if "required" in one and "required" in other:
        merged["required"] = [*one["required"], *other["required"]]
    return merged


def _integer(schema: dict[str, Any]) -> JsonStrategy:
    low = max(
        math.ceil(schema.get("minimum", -_WHOLE)),
        math.floor(schema.get("exclusiveMinimum", -_WHOLE - 1)) + 1,
    )
    high = min(
        math.floor(schema.get("maximum", _WHOLE)),
        math.ceil(schema.get("exclusiveMaximum", _WHOLE + 1)) - 1,
    )
    step = schema.get("multipleOf")
    if step and step == int(step):
        step = int(step)
        return st.integers(-(-low // step), high // step).map(lambda number: number * step)
    return st.integers(low, high)


def _number(schema: dict[str, Any]) -> JsonStrategy:
    if "multipleOf" in schema:
        step = schema["multipleOf"]
        low, high = schema.get("minimum", -(10**6)), schema.get("maximum", 10**6)
        return st.integers(math.ceil(low / step), math.floor(high / step)).map(lambda n: n * step)
    low = schema.get("exclusiveMinimum", schema.get("minimum"))
    high = schema.get("exclusiveMaximum", schema.get("maximum"))
    return st.floats(
        None if low is None else float(low),
        None if high is None else float(high),
        allow_nan=False,
        allow_infinity=False,
        exclude_min="exclusiveMinimum" in schema,
        exclude_max="exclusiveMaximum" in schema,
    )


def _string(schema: dict[str, Any]) -> JsonStrategy:
    least = schema.get("minLength", 0)
    most = schema.get("maxLength", least + _LONGEST)
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    if "pattern" in schema:
        text = st.from_regex(schema["pattern"], alphabet=st.characters(codec="utf-8"))
        return text.filter(lambda value: least <= len(value) <= schema.get("maxLength", math.inf))
    if schema.get("contentEncoding") == "base64":
        return st.binary(max_size=_LONGEST).map(lambda data: base64.b64encode(data).decode())
    return st.text(_CHARACTERS, min_size=least, max_size=most)
