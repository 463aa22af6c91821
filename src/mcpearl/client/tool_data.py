"""Structured content as Python objects, typed by an output schema.

An object with known members becomes an object with attributes, and text with a format (`date-time`,
`date`, `uuid`, …) becomes a value of the matching type. Everything else stays plain JSON. The schema
comes from an untrusted server: only a bounded part of it is read, and a value that cannot be converted
is returned as it came.
"""

import datetime
import keyword
import uuid
from collections.abc import Callable
from typing import Any, Union

import msgspec

from mcpearl.types.base import WRAPPED_RESULT_KEY

_MAX_PARTS = 1000  # of a schema; the rest stays plain
_FORMATS: dict[str, Any] = {
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
}
_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}


def is_wrapped(schema: Any) -> bool:
    """Whether an output schema says that the value is under `result`."""
    return isinstance(schema, dict) and schema.get(WRAPPED_RESULT_KEY) is True


def reader_by_schema(schema: dict[str, Any]) -> Callable[[Any], Any]:
    """Return the function that makes `data` of structured content with this output schema."""
    inner = schema
    wrapped = is_wrapped(schema)
    if wrapped:
        properties = schema.get("properties")
        inner = properties.get("result", {}) if isinstance(properties, dict) else {}
    kind = _Types(schema.get("$defs")).of(inner)

    def read(content: Any) -> Any:
        value = content.get("result") if wrapped and isinstance(content, dict) else content
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, RecursionError):
            return value

    return read


class _Types:
    """Makes Python types from the schemas of one document."""

    def __init__(self, defs: Any) -> None:
        self._defs = defs if isinstance(defs, dict) else {}
        self._parts = 0
        self._open: set[str] = set()  # definitions being read: recursive ones stay plain

    def of(self, schema: Any) -> Any:
        """Return the type for a schema; `Any` where it says nothing that matters here."""
        self._parts += 1
        if not isinstance(schema, dict) or self._parts > _MAX_PARTS:
            return Any
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"])
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list):
            return _union([self.of(option) for option in options])
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union([self.of({**schema, "type": each}) for each in kind])
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return list[self.of(schema.get("items"))]  # type: ignore[misc]
        if kind == "string" and isinstance(schema.get("format"), str):
            return _FORMATS.get(schema["format"], str)
        return _TYPES.get(kind, Any) if isinstance(kind, str) else Any

    def _referred(self, reference: str) -> Any:
        name = reference.removeprefix("#/$defs/")
        if name in self._open or name not in self._defs:
            return Any
        self._open.add(name)
        try:
            definition = self._defs[name]
            if isinstance(definition, dict):
                definition = {"title": name, **definition}
            return self.of(definition)
        finally:
            self._open.discard(name)

    def _object(self, schema: dict[str, Any]) -> Any:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return dict[str, self.of(schema.get("additionalProperties"))]  # type: ignore[misc]
        if not all(map(_is_attribute, properties)):
            return dict[str, Any]
        required = schema.get("required")
        needed = set(required) if isinstance(required, list) else set()
        fields = [
            (name, self.of(each)) if name in needed else (name, _optional(self.of(each)), None)
            for name, each in properties.items()
        ]
        title = schema.get("title")
        name = title if isinstance(title, str) and title.isidentifier() else "Data"
        return msgspec.defstruct(name, fields, kw_only=True)


def _is_attribute(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name)


def _optional(kind: Any) -> Any:
    return _union([kind, None])


def _union(kinds: list[Any]) -> Any:
    """Return a union of types; `Any` where msgspec could not tell them apart."""
    if Any in kinds:
        return Any
    union = Union.__getitem__(tuple(kinds))
    try:
        msgspec.json.Decoder(union)
    except TypeError:
        return Any
    return union
