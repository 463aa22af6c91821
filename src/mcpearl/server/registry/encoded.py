"""Encodes the return values of handlers, where no object of the specification has to be made of them."""

from __future__ import annotations

from typing import Any

import msgspec

from mcpearl.protocol.events import EncodedToolResult
from mcpearl.schema.errors import OutputError
from mcpearl.schema.output import Output
from mcpearl.schema.stand_ins import NoEncoding, encode_hook


def _plain(value: Any) -> Any:
    """Convert a value that the encoder does not know; pydantic models convert themselves."""
    dump = getattr(value, "model_dump", None)
    return encode_hook(value) if dump is None else dump(mode="json", by_alias=True)


_RESULT = b'{"content":[{"type":"text","text":%b}],"structuredContent":%b}'
_RESULT_WITHOUT_QUOTES = _RESULT.replace(b"%b", b'"%b"', 1)  # its text has nothing to escape
_QUOTE = ord('"')  # as a number, which is found in bytes faster than bytes are
_to_json = msgspec.json.Encoder(enc_hook=_plain).encode


def to_json(value: Any, name: str) -> bytes:
    """Encode a handler's return value as JSON. Raises `OutputError`."""
    try:
        return _to_json(value)
    except NoEncoding as error:
        kind = type(value).__name__
        inside = "" if error.kind is type(value) else f"a `{kind}` that contains "
        raise OutputError(
            f"`{name}` returned {inside}an instance of `{error.kind.__qualname__}`, {error}"
        ) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise OutputError(
            f"`{name}` returned a `{type(value).__name__}` that has no JSON form: {error}"
        ) from None


def encoded_tool_result(value: Any, output: Output) -> EncodedToolResult:
    """Return what `results.tool_result` returns, encoded, without making the objects."""
    encode = output.encode
    structured = encode(value)
    if type(value) is str:
        text = _to_json(value)
    else:
        text = structured[10:-1] if output.wrapped else structured  # of {"result":…}
        if _QUOTE not in text:
            return EncodedToolResult(_RESULT_WITHOUT_QUOTES % (text, structured))
        text = _to_json(text.decode())
    return EncodedToolResult(_RESULT % (text, structured))
