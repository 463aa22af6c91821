"""Walks the parts of an annotation down to the fields of records, without a schema library."""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

__all__ = ["field_hints", "inside", "is_record", "uses_pydantic"]


def inside(annotation: Any) -> Iterator[Any]:
    """Yield the annotation and all its parts: arguments, metadata, fields of records."""
    seen: dict[int, Any] = {}
    waiting = [annotation]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        # Keep the part alive, so that its id is not reused.
        seen[id(part)] = part
        yield part
        waiting += get_args(part)
        waiting += getattr(part, "__metadata__", ())
        if isinstance(part, type):
            waiting += field_hints(part).values()


def uses_pydantic(annotation: Any) -> bool:
    """Return whether the annotation contains a pydantic model, type or `Field`."""
    # An annotation can use pydantic only if pydantic has been imported.
    return "pydantic" in sys.modules and any(map(_is_pydantic, inside(annotation)))


def _is_pydantic(part: Any) -> bool:
    if hasattr(part, "__get_pydantic_core_schema__"):
        return True
    return type(part).__module__.partition(".")[0] == "pydantic"


def is_record(cls: type) -> bool:
    """Return whether a class is a dataclass, TypedDict, NamedTuple, struct or attrs class."""
    return (
        hasattr(cls, "__dataclass_fields__")
        or typing.is_typeddict(cls)
        or issubclass(cls, msgspec.Struct)
        or hasattr(cls, "__attrs_attrs__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def field_hints(cls: Any) -> dict[str, Any]:
    """Return the annotations of a dataclass, TypedDict, NamedTuple or struct, by field."""
    if not getattr(cls, "__annotations__", None) or cls.__module__ in ("builtins", "typing"):
        return {}
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):
        return {}
