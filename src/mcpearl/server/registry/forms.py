"""Elicitation forms: from a Python type to the flat schema of a form, and back to a value."""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from mcpearl.protocol.errors import McpError
from mcpearl.types.base import Wire
from mcpearl.types.elicitation import ElicitResult, RequestedSchema, primitive_schema
from mcpearl.types.jsonrpc import INVALID_PARAMS

T = TypeVar("T")


class Elicited(Generic[T]):
    """The user's reaction to a form.

    Args:
        action: What the user did: `accept`, `decline` or `cancel`.
        data: What they filled in, as the form's type; None unless they accepted.
    """

    __slots__ = ("action", "data")

    def __init__(self, action: Literal["accept", "decline", "cancel"], data: T) -> None:
        self.action = action
        self.data = data

    @property
    def accepted(self) -> bool:
        """Whether the user accepted the form."""
        return self.action == "accept"

    def __repr__(self) -> str:
        return f"Elicited(action={self.action!r}, data={self.data!r})"


class Form:
    """A form. Without a schema it only asks for consent."""

    def __init__(self, schema: Any) -> None:
        self._kind: Any = None
        if schema is None:
            self.requested_schema = RequestedSchema(properties={})
        elif isinstance(schema, RequestedSchema):
            self.requested_schema = schema
        elif isinstance(schema, dict):
            self.requested_schema = msgspec.convert(schema, RequestedSchema)
        else:
            self._kind = schema
            self.requested_schema = _from_type(schema)
        for name, definition in self.requested_schema.properties.items():
            if isinstance(definition, Wire):
                continue
            try:
                primitive_schema(definition)
            except msgspec.ValidationError as error:
                raise TypeError(
                    f"form field `{name}` cannot be shown by clients ({error}); "
                    "use text, numbers, booleans, `Literal` or lists of `Literal`"
                ) from None

    def read(self, result: ElicitResult) -> Elicited[Any]:
        """Return the user's answer, converted to the type of the form. Raises `McpError`."""
        if result.action != "accept":
            return Elicited(result.action, None)
        content = result.content or {}
        try:
            if self._kind is None:
                _check(content, self.requested_schema)
                return Elicited("accept", content)
            return Elicited("accept", _to_type(content, self._kind))
        except ValueError as error:
            raise McpError(
                INVALID_PARAMS, f"The client's answer does not fit the form: {error}"
            ) from None


def _check(content: dict[str, Any], schema: RequestedSchema) -> None:
    from mcpearl.schema.given import compile_schema

    compile_schema(msgspec.to_builtins(schema), where="form").check(content)


def _from_type(kind: Any) -> RequestedSchema:
    if hasattr(kind, "model_json_schema"):
        schema = kind.model_json_schema()
        defs = schema.get("$defs", {})
    else:
        (schema,), defs = msgspec.json.schema_components([kind])
    schema = _resolved(schema, defs)
    if schema.get("type") != "object":
        raise TypeError(f"a form needs a type with fields, not {kind!r}")
    properties = {
        name: _field(definition, defs) for name, definition in schema.get("properties", {}).items()
    }
    return RequestedSchema(properties=properties, required=schema.get("required") or None)


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
    if "enum" in schema and "type" not in schema:
        schema = {**schema, "type": "string"}
    if schema.get("default", ...) is None:
        schema = _without(schema, "default")
    if schema.get("type") == "array" and "items" in schema:
        schema = {**schema, "items": _field(schema["items"], defs)}
    return schema


def _without(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != name}


def _to_type(content: dict[str, Any], kind: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(content)
    return msgspec.convert(content, kind)
