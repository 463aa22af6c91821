"""Elicitation forms: from a Python type to the flat schema of a form, and back to a value.

A type with fields is a form with these fields. Any other type that a form can show (text, numbers,
booleans, choices) is a form with the one field `value`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec

from mcpearl import types
from mcpearl.protocol.errors import McpError
from mcpearl.server.asking import Elicited
from mcpearl.types.base import Wire
from mcpearl.types.jsonrpc import INVALID_PARAMS

_ONLY = "value"  # the field of a form with a single question


class Form:
    """A form. Without a schema it only asks for consent."""

    def __init__(self, schema: Any) -> None:
        self._read: Callable[[dict[str, Any]], Any] = self._as_it_came
        if schema is None:
            self.requested_schema = types.RequestedSchema(properties={})
        elif isinstance(schema, types.RequestedSchema):
            self.requested_schema = schema
        elif isinstance(schema, dict):
            self.requested_schema = _written(schema)
        else:
            self.requested_schema, self._read = _of_type(_choices(schema))
        for name, definition in self.requested_schema.properties.items():
            if isinstance(definition, Wire):
                continue
            try:
                types.primitive_schema(definition)
            except msgspec.ValidationError as error:
                raise TypeError(
                    f"form field `{name}` cannot be shown by clients ({error}); "
                    "use text, numbers, booleans, `Literal` or lists of `Literal`"
                ) from None

    def read(self, result: types.ElicitResult) -> Elicited[Any]:
        """Return the user's answer, converted to the type of the form. Raises `McpError`."""
        if result.action != "accept":
            return Elicited(result.action, None)
        try:
            return Elicited("accept", self._read(result.content or {}))
        except ValueError as error:
            raise McpError(
                INVALID_PARAMS, f"The client's answer does not fit the form: {error}"
            ) from None

    def _as_it_came(self, content: dict[str, Any]) -> dict[str, Any]:
        from mcpearl.schema.given import compile_schema

        compile_schema(msgspec.to_builtins(self.requested_schema), where="form").check(content)
        return content


def _written(schema: dict[str, Any]) -> types.RequestedSchema:
    try:
        return msgspec.convert(schema, types.RequestedSchema)
    except msgspec.ValidationError as error:
        raise TypeError(
            f"this is not the schema of a form ({error}); a dict is a JSON Schema with "
            '`"type": "object"` and `"properties"`'
        ) from None


def _choices(schema: Any) -> Any:
    """Return the type of a list of choices: one of them, or several if the list is in a list."""
    if not isinstance(schema, list):
        return schema
    several = len(schema) == 1 and isinstance(schema[0], list)
    options = schema[0] if several else schema
    if not options or not all(isinstance(option, str) for option in options):
        raise TypeError(
            f"a form can offer a choice of texts, as in ['low', 'high'], not {schema!r}"
        )
    one = Literal.__getitem__(tuple(options))
    return list[one] if several else one  # type: ignore[valid-type]


def _of_type(kind: Any) -> tuple[types.RequestedSchema, Callable[[dict[str, Any]], Any]]:
    try:
        schema, read = _compiled(kind)
    except TypeError:
        if _is_hashable(kind):
            raise
        schema, read = _compile(kind)
    return types.RequestedSchema(properties=dict(schema.properties), required=schema.required), read


def _is_hashable(kind: Any) -> bool:
    try:
        hash(kind)
    except TypeError:
        return False
    return True


def _compile(kind: Any) -> tuple[types.RequestedSchema, Callable[[dict[str, Any]], Any]]:
    from mcpearl.schema.value import compile_value

    value = compile_value(kind, where="form", name=_ONLY)
    defs = value.schema.get("$defs", {})
    schema = _resolved(value.schema, defs)
    if schema.get("type") == "object" and "properties" in schema:
        fields = {name: _field(each, defs) for name, each in schema["properties"].items()}
        asked = types.RequestedSchema(properties=fields, required=schema.get("required") or None)
        return asked, lambda content: _read_fields(value.read, content)
    only = _field(_without(schema, "$defs"), defs)
    asked = types.RequestedSchema(properties={_ONLY: only}, required=[_ONLY])
    return asked, lambda content: value.read(content.get(_ONLY))


def _read_fields(read: Callable[[Any], Any], content: dict[str, Any]) -> Any:
    try:
        return read(content)
    except ValueError as error:
        raise ValueError(str(error).replace(f"`{_ONLY}.", "`")) from None


_compiled = lru_cache(maxsize=256)(_compile)  # a handler shows the same form again and again


def _resolved(schema: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = {**defs[schema["$ref"].rpartition("/")[2]], **_without(schema, "$ref")}
    return schema


def _field(schema: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Convert a field's schema to what elicitation allows: no nulls, and enums with a type."""
    schema = _resolved(schema, defs)
    options = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        schema = {**_without(schema, "anyOf"), **_resolved(options[0], defs)}
    if "const" in schema:
        schema = {**_without(schema, "const"), "enum": [schema["const"]]}
    if "enum" in schema and "type" not in schema:
        schema = {**schema, "type": "string"}
    if schema.get("default", ...) is None:
        schema = _without(schema, "default")
    if schema.get("type") == "array" and "items" in schema:
        schema = {**schema, "items": _field(schema["items"], defs)}
    return schema


def _without(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != name}
