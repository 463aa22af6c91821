"""Decodes arguments with pydantic, for signatures that use it.

It behaves as the msgspec decoder does: decoding is the validation, in strict mode so that the
published schema is accurate, and error messages have the same form. Imported only when needed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pydantic
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from mcpearl.schema.adapt import or_none
from mcpearl.schema.errors import ArgumentsError
from mcpearl.schema.for_pydantic import PydanticAdapter
from mcpearl.schema.parameters import MISSING, Parameter
from mcpearl.schema.with_msgspec import no_json_form
from mcpearl.schema.wording import UnfitArgument, arguments_error, path_text, shown
from mcpearl.types.base import decode_any

__all__ = [
    "UNSUPPORTED",
    "PydanticArguments",
    "cleaned",
    "compile_pydantic_value",
    "describe_pydantic",
]

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

# Raised by pydantic when a class contains a type that it has no schema for.
UNSUPPORTED = (pydantic.errors.PydanticUserError, TypeError, ValueError, NameError)


class PydanticArguments:
    """Decoder, schema and error messages for the arguments of one signature."""

    mismatch: type[Exception] = pydantic.ValidationError

    def __init__(
        self, parameters: Sequence[Parameter], extra: Parameter | None, subject: str
    ) -> None:
        #: The attribute of the decoded arguments that holds each parameter. Not the parameter's own
        #: name, which may clash with attributes of a model (`copy`, `json`, `schema`, `model_…`).
        self.attributes = {each.name: f"argument_{at}" for at, each in enumerate(parameters)}
        adapt = PydanticAdapter().adapt
        fields: dict[str, Any] = {
            self.attributes[each.name]: _field(each, adapt, subject) for each in parameters
        }
        self._model = _model(fields, extra, adapt, subject)
        if extra is not None:
            self.attributes[extra.name] = "model_extra"
        schema = cleaned(self._model, "validation")
        self.properties: dict[str, dict[str, Any]] = schema.get("properties", {})
        self.defs: dict[str, Any] = schema.get("$defs", {})
        self.required: list[str] = schema.get("required", [])
        self._open = extra is not None
        self.additional: dict[str, Any] | bool = (
            schema.get("additionalProperties", True) if self._open else False
        )

    def decode(self, raw: Any) -> Any:
        """Decode raw JSON in strict mode."""
        return self._decode(raw, strict=True)

    def decode_lax(self, raw: Any) -> Any:
        """Decode raw JSON, converting strings to other types where the annotation asks for it."""
        return self._decode(raw, strict=False)

    def _decode(self, raw: Any, *, strict: bool) -> Any:
        decoded = self._model.model_validate_json(bytes(raw), strict=strict)
        if unknown := self._unknown(raw):
            raise arguments_error([], unknown, [], self.properties)
        return decoded

    def _unknown(self, raw: Any) -> list[str]:
        """Return the arguments that the signature does not have.

        `extra="forbid"` is not used for this, since it would also apply to the parameters' types.
        """
        if self._open:
            return []
        return [name for name in _members(raw) if name not in self.properties]

    def explain(self, raw: Any, error: Exception, *, strict: bool) -> ArgumentsError:
        """Describe every wrong argument."""
        assert isinstance(error, pydantic.ValidationError)
        missing, problems = [], []
        for found in error.errors(include_url=False):
            location = found["loc"]
            if found["type"] == "json_invalid":
                decode_any(raw)
                return ArgumentsError(f"the arguments cannot be read: {found['msg']}")
            if not location:
                return ArgumentsError(f"the arguments must be an object, got {_kind(raw)}")
            name = str(location[0])
            if found["type"] == "missing" and len(location) == 1:
                missing.append(name)
            else:
                problems.append(UnfitArgument(name, f"argument {describe_pydantic(found)}"))
        return arguments_error(missing, self._unknown(raw), problems, self.properties)


def describe_pydantic(found: Any) -> str:
    """Describe one of pydantic's errors in the wording of this package."""
    what = found["msg"].removeprefix("Value error, ")
    what = what.replace("Input should be ", "expected ", 1)
    place = f"`{path_text(found['loc'])}`"
    if found["type"] == "missing":
        parent, name = path_text(found["loc"][:-1]), found["loc"][-1]
        return f"`{parent}`: object missing required field `{name}`"
    return f"{place}: {what}, got {shown(found['input'])}"


def compile_pydantic_value(
    annotation: Any, where: str, name: str
) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Return the schema of one value, and a function that converts a JSON value to it."""
    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(
            PydanticAdapter().adapt(annotation)
        )
        schema = cleaned(adapter, "validation")
    except UNSUPPORTED as error:
        reason = TypeError(str(error).partition("\n")[0])
        raise no_json_form(where, annotation, reason) from error

    def read(value: Any) -> Any:
        try:
            return adapter.validate_json(msgspec.json.encode(value))
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False)
            said = [describe_pydantic({**one, "loc": (name, *one["loc"])}) for one in found[:5]]
            raise ValueError("; ".join(said)) from None

    return schema, read


def cleaned(model: Any, mode: JsonSchemaMode) -> dict[str, Any]:
    """Return the schema of a model or adapter without generated titles."""
    make = model.json_schema if isinstance(model, pydantic.TypeAdapter) else model.model_json_schema
    schema: dict[str, Any] = make(mode=mode, schema_generator=_Untitled)
    for name, definition in schema.get("$defs", {}).items():
        if name.endswith(definition.get("title", " ")):
            del definition["title"]
    schema.pop("title", None)
    return schema


class _Untitled(GenerateJsonSchema):
    """Publishes the same schemas as the msgspec side: what the decoder accepts, without titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def set_schema(self, schema: Any) -> dict[str, Any]:
        return self._set(super().set_schema(schema))

    def frozenset_schema(self, schema: Any) -> dict[str, Any]:
        return self._set(super().frozenset_schema(schema))

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        made = super().bytes_schema(schema)
        if made.get("format") == "base64url":
            del made["format"]
            made["contentEncoding"] = "base64"
        return made

    def _set(self, made: dict[str, Any]) -> dict[str, Any]:
        # Repeated items are accepted, and become one.
        if self.mode == "validation":
            made.pop("uniqueItems", None)
        return made


def _field(parameter: Parameter, adapt: Callable[[Any], Any], subject: str) -> tuple[Any, Any]:
    annotation = Any if parameter.annotation is MISSING else parameter.annotation
    default = ... if parameter.default is MISSING else parameter.default
    if default is msgspec.UNSET:
        default = pydantic.Field(default_factory=lambda: msgspec.UNSET)  # nothing to publish
    kind = _adapted(annotation, parameter, adapt, subject)
    if default is None:
        kind = or_none(kind)  # `x: int = None` means `int | None`
    _check(kind, parameter, subject)
    own = default if isinstance(default, FieldInfo) else None
    if own is None or (own.alias is None and own.validation_alias is None):
        # First, so that an alias in the author's `Annotated` takes precedence.
        base, *metadata = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        kind = Annotated[(base, pydantic.Field(alias=parameter.name), *metadata)]
    return kind, default


def _check(kind: Any, parameter: Parameter, subject: str) -> None:
    try:
        pydantic.TypeAdapter(kind).json_schema()
    except UNSUPPORTED as error:
        place = f"{subject}: parameter `{parameter.name}`"
        reason = TypeError(str(error).partition("\n")[0])
        raise no_json_form(place, parameter.annotation, reason) from error


def _adapted(
    annotation: Any, parameter: Parameter, adapt: Callable[[Any], Any], subject: str
) -> Any:
    try:
        return adapt(annotation)
    except UNSUPPORTED as error:
        place = f"{subject}: parameter `{parameter.name}`"
        raise no_json_form(place, parameter.annotation, error) from error


def _model(
    fields: dict[str, Any], extra: Parameter | None, adapt: Callable[[Any], Any], subject: str
) -> Any:
    config = pydantic.ConfigDict(
        extra="ignore" if extra is None else "allow",
        val_json_bytes="base64",
        ser_json_bytes="base64",
        protected_namespaces=(),
    )
    namespace: dict[str, Any] = {"model_config": config}
    if extra is not None:
        annotation = Any if extra.annotation is MISSING else extra.annotation
        kind = _adapted(annotation, extra, adapt, subject)
        _check(kind, extra, subject)
        namespace["__annotations__"] = {"__pydantic_extra__": types.GenericAlias(dict, (str, kind))}
    base = type("Open", (pydantic.BaseModel,), {"__module__": __name__, **namespace})
    return pydantic.create_model("Arguments", __base__=base, **fields)


def _kind(raw: Any) -> str:
    return shown(decode_any(raw)).partition(" ")[0]
