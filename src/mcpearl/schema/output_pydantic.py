"""Checks and encodes results with pydantic, for return annotations that use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pydantic
from pydantic_core import PydanticSerializationError

from mcpearl.schema.errors import OutputError
from mcpearl.schema.for_pydantic import PydanticAdapter
from mcpearl.schema.with_msgspec import no_json_form
from mcpearl.schema.with_pydantic import (
    UNSUPPORTED,
    cleaned,
    describe_pydantic,
)
from mcpearl.schema.wording import not_finite

__all__ = ["compile_pydantic"]


def compile_pydantic(
    annotation: Any, subject: str
) -> tuple[dict[str, Any], Callable[[Any], bytes]]:
    """Return the output schema and the checking encoder of a return annotation."""
    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(
            PydanticAdapter(output=True).adapt(annotation)
        )
        schema = cleaned(adapter, "serialization")
    except UNSUPPORTED as error:
        reason = TypeError(str(error).partition("\n")[0])
        raise no_json_form(f"{subject}: return value", annotation, reason) from error
    validate, dump, check = adapter.validate_python, adapter.dump_json, adapter.validate_json

    def encode(value: Any) -> bytes:
        try:
            # Warnings are errors: a model may have been changed and no longer fit.
            raw = dump(validate(value), by_alias=True, warnings="error")
            if b"null" in raw and not_finite(value):
                check(raw)  # numbers that JSON does not have become null
            return raw
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False)[0]
            said = not_finite(value) or describe_pydantic(
                {**found, "loc": ("result", *found["loc"])}
            )
            raise OutputError(f"{subject}: the result does not fit: {said}") from None
        except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
            raise OutputError(f"{subject}: the result has no JSON form: {error}") from error

    return schema, encode
