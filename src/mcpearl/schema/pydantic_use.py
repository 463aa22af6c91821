"""Whether an annotation uses pydantic, found out without importing it."""

from __future__ import annotations

import sys
import typing
from typing import Any, get_args

__all__ = ["uses_pydantic"]


def uses_pydantic(annotation: Any) -> bool:
    """Whether a pydantic model, type or `Field` stands anywhere inside."""
    # Whoever uses it has imported it.
    return "pydantic" in sys.modules and _inside(annotation, set())


def _inside(annotation: Any, seen: set[int]) -> bool:
    if id(annotation) in seen:
        return False
    seen.add(id(annotation))
    if hasattr(annotation, "__get_pydantic_core_schema__"):
        return True
    if type(annotation).__module__.partition(".")[0] == "pydantic":
        return True
    metadata = getattr(annotation, "__metadata__", ())
    parts = [*get_args(annotation), *metadata]
    if isinstance(annotation, type):
        parts += _fields(annotation)
    return any(_inside(part, seen) for part in parts)


def _fields(cls: type) -> list[Any]:
    """Annotations of a dataclass, TypedDict, NamedTuple or struct."""
    if not getattr(cls, "__annotations__", None) or cls.__module__ in ("builtins", "typing"):
        return []
    try:
        return list(typing.get_type_hints(cls, include_extras=True).values())
    except (NameError, TypeError):
        return []
