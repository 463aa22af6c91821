"""Completes decoded dataclasses: msgspec does not store a default that is an attribute of the class.

Such an object looks complete, but its encoder writes only what the object itself holds. So defaults
are stored in every decoded dataclass, and a handler that returns an argument unchanged sends all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_origin

import msgspec

from mcpearl.schema.inside import inside

__all__ = ["completing"]


def completing(decode: Callable[[Any], Any], annotations: Iterable[Any]) -> Callable[[Any], Any]:
    """Return a decoder that completes what `decode` returns; `decode` itself if none needs it.

    Args:
        decode: Decodes a value of one of the annotations, or a struct of them.
        annotations: Everything that the decoded value may consist of.
    """
    parts = [part for annotation in annotations for part in inside(annotation)]
    if not any(_class_defaults(part) for part in parts):
        return decode

    def decode_whole(raw: Any) -> Any:
        value = decode(raw)
        _complete(value)
        return value

    return decode_whole


def _class_defaults(part: Any) -> dict[str, Any]:
    """Return the defaults that a dataclass keeps as attributes of the class, by field."""
    part = get_origin(part) or part
    if not isinstance(part, type) or not hasattr(part, "__dataclass_fields__"):
        return {}
    import dataclasses  # loaded by now: the part is one

    if "__slots__" in part.__dict__:
        return {}  # the class has no room for defaults, so msgspec sets them
    return {
        field.name: field.default
        for field in dataclasses.fields(part)
        if field.default is not dataclasses.MISSING
    }


def _complete(value: Any) -> None:
    kind = type(value)
    if kind in _SIMPLE:
        return
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _complete(item)
    elif isinstance(value, dict):
        for item in value.values():
            _complete(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _complete(getattr(value, name))
    elif hasattr(kind, "__dataclass_fields__"):
        _complete_dataclass(value)


def _complete_dataclass(value: Any) -> None:
    import dataclasses

    held: dict[str, Any] | None = getattr(value, "__dict__", None)
    for field in dataclasses.fields(value):
        if held is not None and field.name not in held:
            if field.default is not dataclasses.MISSING:
                held[field.name] = field.default
        else:
            _complete(getattr(value, field.name))


_SIMPLE = (str, int, float, bool, type(None))
