"""Makes the twin of a record that is decoded in its place; see `records`."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect as mi

from mcpearl.schema.records import Record

__all__ = ["dict_or_tuple", "twin_of"]

# Untyped, since a type checker accepts these calls only with literal names.
_named_tuple: Any = typing.NamedTuple
_typed_dict: Any = typing.TypedDict


def twin_of(record: Record, adapt: Callable[[Any], Any]) -> Any:
    """Return a struct, TypedDict or NamedTuple with the record's fields, adapted for msgspec."""
    hints = {each.name: adapt(each.hint) for each in record.fields}
    return dict_or_tuple(record, hints, _typed_dict) or _struct(record, hints)


def dict_or_tuple(record: Record, hints: dict[str, Any], typed_dict: Any) -> Any:
    """Return the twin of a TypedDict or NamedTuple; None for other records.

    Args:
        record: The record.
        hints: The annotations of the twin's fields.
        typed_dict: Makes a TypedDict.
    """
    if isinstance(record.kind, mi.TypedDictType):
        needed = {
            one.name: hints[one.name] if one.required else typing.NotRequired[hints[one.name]]
            for one in record.fields
        }
        twin = typed_dict(record.name, needed)
    elif isinstance(record.kind, mi.NamedTupleType):
        twin = _named_tuple(record.name, list(hints.items()))
        given = [one for one in record.fields if one.default is not msgspec.NODEFAULT]
        twin.__new__.__defaults__ = tuple(one.default for one in given)
        twin._field_defaults = {one.name: one.default for one in given}
    else:
        return None
    twin.__doc__, twin.__module__ = record.cls.__doc__, record.cls.__module__
    return twin


def _struct(record: Record, hints: dict[str, Any]) -> Any:
    kind: Any = record.kind
    fields: list[Any] = []
    for each in record.fields:
        default = each.defaults()
        fields.append(
            (each.name, hints[each.name], *([msgspec.field(**default)] if default else []))
        )
    return msgspec.defstruct(
        record.name,
        fields,
        module=record.cls.__module__,
        namespace={"__doc__": record.cls.__doc__},
        rename={each.name: each.encoded for each in record.fields},
        kw_only=True,
        tag_field=getattr(kind, "tag_field", None),
        tag=getattr(kind, "tag", None),
        array_like=getattr(kind, "array_like", False),
        forbid_unknown_fields=getattr(kind, "forbid_unknown_fields", False),
    )
