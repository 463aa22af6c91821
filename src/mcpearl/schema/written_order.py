"""Keeps published choices and fields in the order they were written in, which msgspec sorts."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args, get_origin

from mcpearl.schema.inside import field_hints

__all__ = ["choices_as_written", "fields_as_written"]


def fields_as_written(cls: Any, fields: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pair the fields of a record with their annotations, in the order of its definition."""
    hints = field_hints(get_origin(cls) or cls)
    order = {name: at for at, name in enumerate(hints)}
    ordered = sorted(fields, key=lambda field: order.get(field.name, len(order)))
    return [(field, hints.get(field.name)) for field in ordered]


def choices_as_written(schema: dict[str, Any], annotation: Any) -> dict[str, Any]:
    """Return the schema of an annotation with the choices of every `Literal` in its order."""
    written = {frozenset(map(_key, choices)): choices for choices in _literals(annotation)}
    if not written:
        return schema
    reordered: dict[str, Any] = _reordered(schema, written)
    return reordered


def _literals(annotation: Any) -> Iterable[list[Any]]:
    if get_origin(annotation) is Literal:
        yield [_value(choice) for choice in get_args(annotation)]
        return
    for part in get_args(annotation):
        yield from _literals(part)


def _value(choice: Any) -> Any:
    return choice.value if isinstance(choice, enum.Enum) else choice


def _key(choice: Any) -> Any:
    return type(choice), choice


def _reordered(schema: Any, written: dict[frozenset[Any], list[Any]]) -> Any:
    if isinstance(schema, list):
        return [_reordered(each, written) for each in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _reordered(each, written) for key, each in schema.items() if key != "default"}
    if "default" in schema:
        changed["default"] = schema["default"]
    choices = schema.get("enum")
    if isinstance(choices, list):
        changed["enum"] = written.get(frozenset(map(_key, choices)), choices)
    return changed
