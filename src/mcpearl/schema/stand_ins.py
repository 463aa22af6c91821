"""Stand-ins for annotations that msgspec cannot decode itself, and the hooks that decode them.

`adapt` puts a stand-in where an annotation needs one. Its `decode` is called by the hook of the decoder
with a value of JSON types.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import msgspec.inspect

__all__ = [
    "Adapted",
    "Choice",
    "Constructed",
    "NoEncoding",
    "OneOf",
    "Recursive",
    "Twin",
    "decode_hook",
    "encode_hook",
    "is_path",
    "lax_hook",
]


class NoEncoding(TypeError):
    """A value to be sent is of a class that has no JSON form."""

    def __init__(self, kind: type) -> None:
        super().__init__(
            "which has no JSON form; use text, numbers, lists, dicts, or a dataclass, TypedDict, "
            "struct or pydantic model"
        )
        self.kind = kind


class _AnyInstance(type):
    """Accepts any instance: msgspec checks the result of a hook with `isinstance`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Adapted(metaclass=_AnyInstance):
    """Stands in for an annotation that msgspec cannot decode."""

    @classmethod
    def decode(cls, value: Any, strict: bool) -> Any:
        """Convert a JSON value to the annotated type. Raises `ValueError` if it does not fit.

        Args:
            value: The value.
            strict: Whether text is not taken for numbers and booleans.
        """
        raise NotImplementedError


class Choice(Adapted):
    """A union whose members msgspec cannot tell apart. The first member that fits is used."""

    members: ClassVar[tuple[Any, ...]]

    @classmethod
    def decode(cls, value: Any, strict: bool) -> Any:
        refusals = []
        # Objects ignore unknown members, so prefer a type that knows all of them.
        fitting = [member for member in cls.members if _knows_all(member, value)]
        for member in [*fitting, *(each for each in cls.members if each not in fitting)]:
            try:
                return _convert(value, member, strict)
            except msgspec.ValidationError as error:
                refusals.append(f"{_name(member)} ({error})")
        raise ValueError(f"Fits none of {', '.join(refusals)}")


class OneOf(Adapted):
    """An enum or literal, matched by value, with values of any type."""

    options: ClassVar[tuple[tuple[Any, Any], ...]]

    @classmethod
    def decode(cls, value: Any, strict: bool) -> Any:
        for given, meant in cls.options:
            # In JSON, `1` and `1.0` are the same number, and `true` is not a number.
            if given == value and isinstance(given, bool) is isinstance(value, bool):
                return meant
        raise ValueError("Invalid enum value")


class Constructed(Adapted):
    """A type constructed from a value that msgspec can decode."""

    source: ClassVar[Any]
    construct: ClassVar[Callable[[Any], Any]]

    @classmethod
    def decode(cls, value: Any, strict: bool) -> Any:
        return cls.construct(_convert_inside(value, cls.source, strict))


class Twin(Adapted):
    """A record that is decoded through a twin, whose annotations msgspec knows."""

    source: ClassVar[Any]
    build: ClassVar[Callable[[dict[str, Any]], Any]]

    @classmethod
    def decode(cls, value: Any, strict: bool) -> Any:
        twin = _convert_inside(value, cls.source, strict)
        if isinstance(twin, dict):
            return twin
        names = getattr(twin, "__struct_fields__", None) or twin._fields
        return cls.build({name: getattr(twin, name) for name in names})


class Recursive(Adapted):
    """An alias that refers to itself, as in `type Tree = dict[str, Tree] | int`."""

    source: ClassVar[Any]

    @classmethod
    def decode(cls, value: Any, strict: bool) -> Any:
        return _convert_inside(value, cls.source, strict)


def decode_hook(kind: type[Any], value: Any, strict: bool = True) -> Any:
    """The `dec_hook` of every strict decoder made in this package."""
    if issubclass(kind, Adapted):
        return kind.decode(value, strict)
    if is_path(kind):
        if isinstance(value, str):
            return kind(value)
        raise ValueError("Expected `str`")
    raise NotImplementedError


def lax_hook(kind: type[Any], value: Any) -> Any:
    """The `dec_hook` of decoders that take text for numbers and booleans."""
    return decode_hook(kind, value, False)


def encode_hook(value: Any) -> Any:
    """The `enc_hook` of every encoder made in this package."""
    if is_path(type(value)):
        return str(value)
    if isinstance(value, collections.deque):
        return list(value)
    raise NoEncoding(type(value))


def is_path(kind: type[Any]) -> bool:
    """Return whether `kind` is a `pathlib` class. Does not import `pathlib` itself."""
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and issubclass(kind, pathlib.PurePath)


def _convert(value: Any, annotation: Any, strict: bool) -> Any:
    hook = decode_hook if strict else lax_hook
    return msgspec.convert(value, annotation, str_keys=True, dec_hook=hook, strict=strict)


def _convert_inside(value: Any, annotation: Any, strict: bool) -> Any:
    """Convert a value inside another one; msgspec adds the outer path to its error."""
    try:
        return _convert(value, annotation, strict)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _knows_all(member: Any, value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    fields = getattr(msgspec.inspect.type_info(member), "fields", None)
    return fields is None or value.keys() <= {field.encode_name for field in fields}


def _name(member: Any) -> str:
    return getattr(member, "__name__", None) or str(member)
