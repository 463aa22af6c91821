"""Encodes the arguments of calls as JSON: plain values, objects with fields, dates, paths and so on."""

from typing import Any

import msgspec


def _plain(value: Any) -> Any:
    """Convert a value that msgspec does not know: pydantic models, paths, deques."""
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json", by_alias=True)
    from mcpearl.schema.stand_ins import encode_hook

    try:
        return encode_hook(value)
    except TypeError:
        raise TypeError(f"a `{type(value).__qualname__}` has no JSON form") from None


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def encode_arguments(name: str, arguments: Any) -> msgspec.Raw:
    """Encode the arguments of a tool.

    Args:
        name: The tool, for errors.
        arguments: A mapping, or an object with fields.
    """
    try:
        encoded = _encode(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(f"{_place(name, arguments)} cannot be sent: {error}") from None
    if encoded[:1] != b"{":
        raise TypeError(
            f"the arguments of `{name}` are a {type(arguments).__name__}; pass a dict, or an object "
            "with fields, such as a dataclass or a pydantic model"
        )
    return msgspec.Raw(encoded)


def as_text(name: str, value: Any) -> str:
    """Return an argument of a prompt as text; a value that is not text is encoded as JSON.

    Args:
        name: The prompt, for errors.
        value: The argument.
    """
    if isinstance(value, str):
        return value
    try:
        encoded = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(f"an argument of `{name}` cannot be sent: {error}") from None
    text = encoded.decode()
    # A date or a path is text already, and needs no quotes.
    return msgspec.json.decode(encoded, type=str) if text[:1] == '"' else text


def _place(name: str, arguments: Any) -> str:
    """Name the first argument that has no JSON form."""
    if isinstance(arguments, dict):
        for key, value in arguments.items():
            try:
                _encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError):
                return f"argument `{key}` of `{name}`"
    return f"the arguments of `{name}`"
