"""Takes records apart into their fields, so that a twin with other annotations can be made of them.

msgspec and pydantic read the annotations of dataclasses, TypedDicts and other records themselves, and
each knows only its own constraints. A record whose fields have metadata that the library does not know
is decoded through a twin, which expresses the same in the library's own terms.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import inspect as mi

from mcpearl.schema.inside import field_hints, is_record

if TYPE_CHECKING:
    import dataclasses

__all__ = ["Field", "Record", "metadata_inside", "record_of", "substituted"]


class Field(msgspec.Struct, frozen=True):
    """A field of a record."""

    name: str
    encoded: str
    """Its name in JSON."""
    hint: Any
    """Its annotation, with type variables filled in."""
    required: bool
    default: Any
    """`msgspec.NODEFAULT` if there is none, or a factory."""
    factory: Any

    def defaults(self) -> dict[str, Any]:
        """Return what a dataclass or struct field needs to have the same default."""
        if self.factory is not msgspec.NODEFAULT:
            return {"default_factory": self.factory}
        return {} if self.default is msgspec.NODEFAULT else {"default": self.default}


class Record(msgspec.Struct, frozen=True):
    """A record: its class, its fields, and how an object of it is made."""

    cls: Any
    kind: mi.Type
    """What msgspec knows of it."""
    fields: tuple[Field, ...]
    build: Callable[[dict[str, Any]], Any]
    """Returns an object from the values of its fields, by name."""

    @property
    def name(self) -> str:
        """The name of the class."""
        return str(self.cls.__name__)


def record_of(annotation: Any) -> Record | None:
    """Take a record class, or a generic one with its arguments, apart; None for anything else."""
    cls = get_origin(annotation) or annotation
    if not isinstance(cls, type) or not is_record(cls):
        return None
    kind = mi.type_info(annotation)
    found = getattr(kind, "fields", None)
    if found is None:
        return None
    hints = _filled_in(annotation, cls)
    fields = tuple(
        Field(
            each.name,
            each.encode_name,
            hints.get(each.name, Any),
            each.required,
            each.default,
            each.default_factory,
        )
        for each in sorted(found, key=lambda each: _place(each.name, hints))
    )
    return Record(cls, kind, fields, _builder(cls))


def _place(name: str, hints: dict[str, Any]) -> int:
    return list(hints).index(name) if name in hints else len(hints)


def _filled_in(annotation: Any, cls: type) -> dict[str, Any]:
    """Return the annotations of the fields, with the type variables of a generic record filled in."""
    hints = {name: _bare(hint) for name, hint in field_hints(cls).items()}
    given = get_args(annotation)
    if not given:
        return hints
    meant = dict(zip(getattr(cls, "__parameters__", ()), given, strict=False))
    return {name: substituted(hint, meant) for name, hint in hints.items()}


def _bare(hint: Any) -> Any:
    """Return an annotation without `Required` and the like, which msgspec has evaluated already."""
    while get_origin(hint) in (typing.Required, typing.NotRequired):
        (hint,) = get_args(hint)
    return hint


def substituted(hint: Any, meant: dict[Any, Any]) -> Any:
    """Return an annotation with type variables replaced."""
    if isinstance(hint, TypeVar):
        return meant.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if not variables or isinstance(hint, type):
        return hint
    return hint[tuple(meant.get(each, each) for each in variables)]


def _builder(cls: Any) -> Callable[[dict[str, Any]], Any]:
    if typing.is_typeddict(cls):
        return dict
    if issubclass(cls, tuple):
        return lambda values: cls(**values)
    later = {each.name for each in _dataclass_fields(cls) if not each.init}
    named = {each.name: each.alias for each in getattr(cls, "__attrs_attrs__", ())}

    def build(values: dict[str, Any]) -> Any:
        made = cls(**{named.get(k, k): v for k, v in values.items() if k not in later})
        for name in later & values.keys():
            object.__setattr__(made, name, values[name])
        return made

    return build


def _dataclass_fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    if not hasattr(cls, "__dataclass_fields__"):
        return ()
    import dataclasses

    return dataclasses.fields(cls)


def metadata_inside(annotation: Any) -> Iterator[Any]:
    """Yield the metadata of every `Annotated` in an annotation, down to the fields of records."""
    seen: dict[int, Any] = {}
    waiting = [annotation]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or get_origin(part) is Literal:
            continue
        seen[id(part)] = part  # kept alive, so that its id is not used again
        yield from getattr(part, "__metadata__", ())
        origin = getattr(part, "__origin__", None)
        waiting += [origin] if isinstance(origin, type) or hasattr(part, "__metadata__") else []
        waiting += get_args(part)[:1] if hasattr(part, "__metadata__") else get_args(part)
        if isinstance(part, type):
            waiting += field_hints(part).values()
