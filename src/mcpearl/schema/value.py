"""A type by itself, outside of a signature: its schema, and the conversion from JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mcpearl.schema.defaults import completing
from mcpearl.schema.inside import uses_pydantic
from mcpearl.schema.publish import Publisher
from mcpearl.schema.stand_ins import decode_hook
from mcpearl.schema.whole_numbers import with_whole_numbers
from mcpearl.schema.with_msgspec import no_json_form
from mcpearl.schema.wording import describe

__all__ = ["Value", "compile_value"]


class Value:
    """A compiled type; made by `compile_value`."""

    __slots__ = ("read", "schema")

    def __init__(self, schema: dict[str, Any], read: Callable[[Any], Any]) -> None:
        #: Its schema, with `$defs` where it has any.
        self.schema = schema
        #: Converts a JSON value to the type. Raises `ValueError` if it does not fit.
        self.read = read


def compile_value(annotation: Any, *, where: str, name: str) -> Value:
    """Compile a type. Raises `SignatureError` if it has no JSON form.

    Args:
        annotation: The type.
        where: What the value is, for error messages.
        name: The name of the value in error messages.
    """
    if uses_pydantic(annotation):
        from mcpearl.schema.with_pydantic import compile_pydantic_value

        return Value(*compile_pydantic_value(annotation, where, name))
    publisher = Publisher()
    try:
        kind = publisher.adapt(annotation)
        decoder = msgspec.json.Decoder(kind, dec_hook=decode_hook)
        schema = publisher.schema(kind)
    except (TypeError, ValueError, NameError, RecursionError) as error:
        raise no_json_form(where, annotation, error) from error
    if publisher.defs:
        schema = {**schema, "$defs": publisher.defs}
    decode = completing(decoder.decode, [annotation])

    def read(value: Any) -> Any:
        raw = msgspec.json.encode(value)
        try:
            return decode(raw)
        except msgspec.ValidationError:
            raw = with_whole_numbers(raw) or raw
        try:
            return decode(raw)
        except msgspec.ValidationError as error:
            raise ValueError(describe(error, name, value, schema)) from None

    return Value(schema, read)
