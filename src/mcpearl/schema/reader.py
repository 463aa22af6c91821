"""Converts decoded JSON to a requested Python type: a builtin, a dataclass, a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mcpearl.schema.adapt import Adapter
from mcpearl.schema.defaults import completing
from mcpearl.schema.errors import SchemaMismatch
from mcpearl.schema.inside import uses_pydantic
from mcpearl.schema.stand_ins import decode_hook

__all__ = ["compile_reader"]


def compile_reader(annotation: Any) -> Callable[[Any], Any]:
    """Return a function that converts dicts, lists and plain values to the annotated type.

    It raises `SchemaMismatch` for a value that does not fit.

    Args:
        annotation: The type to convert to.
    """
    if uses_pydantic(annotation):
        return _with_pydantic(annotation)
    kind = Adapter().adapt(annotation)

    def read(value: Any) -> Any:
        try:
            return msgspec.convert(value, kind, str_keys=True, dec_hook=decode_hook)
        except msgspec.ValidationError as error:
            raise SchemaMismatch(str(error)) from None

    return completing(read, [annotation])


def _with_pydantic(annotation: Any) -> Callable[[Any], Any]:
    import pydantic

    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(annotation)

    def read(value: Any) -> Any:
        try:
            # Validated as JSON, in which strings stand for dates and UUIDs.
            return adapter.validate_json(msgspec.json.encode(value))
        except pydantic.ValidationError as error:
            raise SchemaMismatch(str(error)) from None

    return read
