"""Elicitation: a server asks the user, with a form or with a URL to visit.

A form is a flat JSON Schema of primitive values. Its properties are decoded as plain dicts, since
their kinds differ only in which members they have; `primitive_schema` returns the struct of one.
"""

from typing import Any, Literal

import msgspec

from mcpearl.types.base import (
    NotificationParams,
    Open,
    RequestParams,
    Result,
    TaskMetadata,
    Wire,
)


class StringSchema(Wire, kw_only=True, tag_field="type", tag="string"):
    """A text field."""

    title: str | None = None
    description: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    format: Literal["email", "uri", "date", "date-time"] | None = None
    default: str | None = None


class NumberSchema(Wire, kw_only=True):
    """A number or integer field."""

    type: Literal["number", "integer"]
    title: str | None = None
    description: str | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    default: int | float | None = None


class BooleanSchema(Wire, kw_only=True, tag_field="type", tag="boolean"):
    """A boolean field."""

    title: str | None = None
    description: str | None = None
    default: bool | None = None


class UntitledSingleSelectEnumSchema(Wire, kw_only=True, tag_field="type", tag="string"):
    """A choice of one value, without titles."""

    enum: list[str]
    title: str | None = None
    description: str | None = None
    default: str | None = None


class EnumOption(Wire, kw_only=True):
    """A value with its title."""

    const: str
    title: str


class TitledSingleSelectEnumSchema(Wire, kw_only=True, tag_field="type", tag="string"):
    """A choice of one value, with titles."""

    one_of: list[EnumOption]
    title: str | None = None
    description: str | None = None
    default: str | None = None


class UntitledItems(Wire, kw_only=True, tag_field="type", tag="string"):
    """The values of an `UntitledMultiSelectEnumSchema`."""

    enum: list[str]


class UntitledMultiSelectEnumSchema(Wire, kw_only=True, tag_field="type", tag="array"):
    """A choice of several values, without titles."""

    items: UntitledItems
    title: str | None = None
    description: str | None = None
    min_items: int | None = None
    max_items: int | None = None
    default: list[str] | None = None


class TitledItems(Wire, kw_only=True):
    """The values of a `TitledMultiSelectEnumSchema`."""

    any_of: list[EnumOption]


class TitledMultiSelectEnumSchema(Wire, kw_only=True, tag_field="type", tag="array"):
    """A choice of several values, with titles."""

    items: TitledItems
    title: str | None = None
    description: str | None = None
    min_items: int | None = None
    max_items: int | None = None
    default: list[str] | None = None


class LegacyTitledEnumSchema(Wire, kw_only=True, tag_field="type", tag="string"):
    """A choice of one value, with titles in a separate list."""

    enum: list[str]
    enum_names: list[str] | None = None
    title: str | None = None
    description: str | None = None
    default: str | None = None


PrimitiveSchemaDefinition = (
    StringSchema
    | NumberSchema
    | BooleanSchema
    | UntitledSingleSelectEnumSchema
    | TitledSingleSelectEnumSchema
    | UntitledMultiSelectEnumSchema
    | TitledMultiSelectEnumSchema
    | LegacyTitledEnumSchema
)


class RequestedSchema(Wire, kw_only=True, tag_field="type", tag="object"):
    """The fields of a form, by name.

    A property is a dict as received, or one of the structs above.
    """

    properties: dict[str, Any]
    required: list[str] | None = None
    schema: str | None = msgspec.field(default=None, name="$schema")


class ElicitRequestParams(RequestParams, kw_only=True):
    """Asks the user with a form (`requested_schema`) or a `url`; the default `mode` is form."""

    message: str
    mode: Literal["form", "url"] | None = None
    requested_schema: RequestedSchema | None = None
    url: str | None = None
    elicitation_id: str | None = None
    task: TaskMetadata | None = None


class ElicitRequest(Wire, kw_only=True, tag_field="method", tag="elicitation/create"):
    """An elicitation as contained in an `InputRequiredResult`."""

    params: ElicitRequestParams


class URLElicitationRequiredData(Open, kw_only=True):
    """Data of URL_ELICITATION_REQUIRED: the URLs the user must visit before a retry."""

    elicitations: list[ElicitRequestParams]


class ElicitResult(Result, kw_only=True):
    """The user's action, and the content if a form was accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str] | None] | None = None


class ElicitationCompleteNotificationParams(NotificationParams, kw_only=True):
    """Reports that the user has finished at the URL of an elicitation."""

    elicitation_id: str


def primitive_schema(definition: dict[str, Any]) -> PrimitiveSchemaDefinition:
    """Return the struct of a form's property.

    Args:
        definition: The property, as JSON Schema.

    Raises:
        msgspec.ValidationError: It is not a primitive schema.
    """
    return msgspec.convert(definition, _kind(definition))


def schema_defaults(requested: RequestedSchema) -> dict[str, Any]:
    """Return the defaults that a form declares, by property.

    Args:
        requested: The form.
    """
    defaults = {}
    for name, definition in requested.properties.items():
        # Only the default matters here; the rest of a property need not be valid.
        default = definition.get("default") if isinstance(definition, dict) else definition.default
        if default is not None:
            defaults[name] = default
    return defaults


def _kind(definition: dict[str, Any]) -> type[PrimitiveSchemaDefinition]:
    match definition:
        case {"type": "boolean"}:
            return BooleanSchema
        case {"type": "number" | "integer"}:
            return NumberSchema
        case {"type": "array", "items": {"anyOf": _}}:
            return TitledMultiSelectEnumSchema
        case {"type": "array"}:
            return UntitledMultiSelectEnumSchema
        case {"type": "string", "oneOf": _}:
            return TitledSingleSelectEnumSchema
        case {"type": "string", "enum": _, "enumNames": _}:
            return LegacyTitledEnumSchema
        case {"type": "string", "enum": _}:
            return UntitledSingleSelectEnumSchema
        case {"type": "string"}:
            return StringSchema
    raise msgspec.ValidationError("Not a primitive schema: `type` is none of the allowed ones")
