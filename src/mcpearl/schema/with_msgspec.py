"""Decodes arguments with msgspec, from raw JSON directly into a struct made for the signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mcpearl.schema.adapt import or_none
from mcpearl.schema.defaults import completing
from mcpearl.schema.errors import ArgumentsError, SignatureError
from mcpearl.schema.parameters import MISSING, Parameter
from mcpearl.schema.publish import NoJsonForm, Publisher, default_of
from mcpearl.schema.stand_ins import decode_hook, lax_hook
from mcpearl.types.base import decode_any

__all__ = ["Arguments", "MsgspecArguments", "no_json_form"]


class Arguments(msgspec.Struct):
    """The decoded arguments of a call: one attribute per parameter."""


class MsgspecArguments:
    """Decoder, schema and error messages for the arguments of one signature."""

    mismatch: type[Exception] = msgspec.ValidationError

    def __init__(
        self, parameters: Sequence[Parameter], extra: Parameter | None, subject: str
    ) -> None:
        publisher = Publisher()
        self.properties: dict[str, dict[str, Any]] = {}
        #: The attribute of the decoded arguments that holds each parameter.
        self.attributes = {each.name: each.name for each in parameters}
        self._types: dict[str, Any] = {}
        for each in parameters:
            self._types[each.name], schema = _compiled(each, publisher, subject)
            self.properties[each.name] = (
                schema if each.required else schema | default_of(each.default)
            )
        self.additional: dict[str, Any] | bool = False
        self._extra: Any = None
        if extra is not None:
            self._extra, schema = _compiled(extra, publisher, subject)
            self.additional = schema or True
        self.defs = publisher.defs
        self.required = [each.name for each in parameters if each.required]
        self._struct = _struct(parameters, self._types, extra)
        decoder = msgspec.json.Decoder(self._struct, dec_hook=decode_hook)
        lax = msgspec.json.Decoder(self._struct, dec_hook=lax_hook, strict=False)
        decode: Callable[[Any], Any] = decoder.decode
        decode_lax: Callable[[Any], Any] = lax.decode
        annotations = [each.annotation for each in parameters]
        if extra is not None:
            self.attributes[extra.name] = extra.name
            decode = self._with_extra(decode, extra.name, strict=True)
            decode_lax = self._with_extra(decode_lax, extra.name, strict=False)
            annotations.append(extra.annotation)
        self.decode = completing(decode, annotations)
        self.decode_lax = completing(decode_lax, annotations)

    def explain(self, raw: Any, error: Exception, *, strict: bool) -> ArgumentsError:
        """Describe every wrong argument. msgspec itself stops at the first."""
        from mcpearl.schema.wording import UnfitArgument, arguments_error, describe, json_type

        try:
            given = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            came = json_type(decode_any(raw))
            return ArgumentsError(f"the arguments must be an object, got {came}")
        problems = []
        for name, value in given.items():
            kind = self._types.get(name, self._extra)
            if kind is None:
                continue
            try:
                msgspec.json.decode(value, type=kind, dec_hook=_hook(strict), strict=strict)
            except msgspec.ValidationError as found:
                schema = {**self.properties.get(name, {}), "$defs": self.defs}
                plain = decode_any(value)
                problems.append(
                    UnfitArgument(name, f"argument {describe(found, name, plain, schema)}")
                )
        missing = [name for name in self.required if name not in given]
        unknown = [] if self._extra is not None else [n for n in given if n not in self._types]
        if not (missing or unknown or problems):
            return ArgumentsError(str(error))
        return arguments_error(missing, unknown, problems, self._types)

    def _with_extra(
        self, decode: Callable[[Any], Any], attribute: str, *, strict: bool
    ) -> Callable[[Any], Any]:
        """Decode named parameters into the struct and all others into its `**kwargs`."""

        def decode_all(raw: Any) -> Any:
            arguments = decode(raw)
            given = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            extra = {
                name: msgspec.json.decode(
                    value, type=self._extra, dec_hook=_hook(strict), strict=strict
                )
                for name, value in given.items()
                if name not in self._types
            }
            setattr(arguments, attribute, extra)
            return arguments

        return decode_all


def _hook(strict: bool) -> Callable[[type[Any], Any], Any]:
    return decode_hook if strict else lax_hook


def _compiled(
    parameter: Parameter, publisher: Publisher, subject: str
) -> tuple[Any, dict[str, Any]]:
    annotation = Any if parameter.annotation is MISSING else parameter.annotation
    try:
        kind = publisher.adapt(annotation)
        if parameter.default is None:
            kind = publisher.adapt(or_none(kind))  # `x: int = None` means `int | None`
        msgspec.json.Decoder(kind, dec_hook=decode_hook)
        return kind, publisher.schema(kind)
    except (TypeError, ValueError, NameError, RecursionError) as error:
        raise no_json_form(f"{subject}: parameter `{parameter.name}`", annotation, error) from error


def no_json_form(place: str, annotation: Any, error: Exception) -> SignatureError:
    """Return the error that names the annotation and lists what can be used instead."""
    if isinstance(error, NoJsonForm):
        inside = "" if error.kind is annotation else f" (because of `{_written(error.kind)}`)"
        reason = f"has no JSON form{inside}"
    elif isinstance(error, RecursionError):
        reason = "cannot be used, since it contains itself"
    else:
        reason = f"cannot be used: {error}"
    return SignatureError(
        f"{place} has annotation `{_written(annotation)}`, which {reason}; use a builtin or "
        "standard type that JSON can carry, or a dataclass, TypedDict, msgspec.Struct or "
        "pydantic model of such"
    )


def _written(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        module = "" if annotation.__module__ == "builtins" else f"{annotation.__module__}."
        return f"{module}{annotation.__qualname__}"
    return str(annotation)


def _struct(
    parameters: Sequence[Parameter], types: dict[str, Any], extra: Parameter | None
) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for each in parameters:
        if each.required:
            fields.append((each.name, types[each.name]))
        else:
            fields.append((each.name, types[each.name], _default(each.default)))
    rename = {}
    if extra is not None:
        # Filled in after decoding; no argument can have this name in JSON.
        fields.append((extra.name, dict[str, Any], msgspec.field(default_factory=dict)))
        rename[extra.name] = f"**{extra.name}"
    return msgspec.defstruct(
        "Arguments",
        fields,
        bases=(Arguments,),
        kw_only=True,
        rename=rename,
        forbid_unknown_fields=extra is None,
    )


def _default(default: Any) -> Any:
    """Return a field default that calls do not share: mutable values are copied for each call."""
    mutable = isinstance(default, list | dict | set | bytearray | msgspec.Struct)
    if mutable or hasattr(default, "__dataclass_fields__"):
        from copy import deepcopy  # few defaults are mutable

        return msgspec.field(default_factory=lambda: deepcopy(default))
    return msgspec.field(default=default)
