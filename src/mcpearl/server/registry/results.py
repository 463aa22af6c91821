"""Converts the return values of handlers to results of the protocol.

Handlers return plain Python values; results, contents and messages of the specification are passed
through. A value without a JSON form raises `OutputError`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Raw

from mcpearl import types
from mcpearl.protocol.events import EncodedToolResult
from mcpearl.schema.errors import OutputError
from mcpearl.schema.output import Output
from mcpearl.schema.stand_ins import NoEncoding, encode_hook
from mcpearl.server.registry.returns import Media, Message, ToolResult
from mcpearl.types.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcpearl.types.resources import ReadResourceResult, ResourceContents
from mcpearl.types.tools import CallToolResult

CONTENT_TYPES = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)


def _plain(value: Any) -> Any:
    """Convert a value that the encoder does not know; pydantic models convert themselves."""
    dump = getattr(value, "model_dump", None)
    return encode_hook(value) if dump is None else dump(mode="json", by_alias=True)


_to_json = msgspec.json.Encoder(enc_hook=_plain).encode


def is_content(annotation: Any) -> bool:
    """Return whether a return annotation is content, for which no schema is published."""
    if not isinstance(annotation, type):
        return annotation is ContentBlock
    return issubclass(annotation, (*CONTENT_TYPES, CallToolResult, ToolResult, bytes, Media))


def may_hold_content(annotation: Any) -> bool:
    """Return whether a return annotation is a list of any values, which may be content."""
    return (get_origin(annotation) or annotation) in (list, tuple, Sequence) and all(
        part in (Any, object, ...) for part in get_args(annotation)
    )


def tool_result(value: Any, output: Output | None, name: str) -> CallToolResult:
    """Return the result of a tool that returned `value`."""
    if isinstance(value, CallToolResult):
        return value
    if output is not None:
        encode = output.encode
        structured = encode(value)
        if type(value) is str:
            text = value
        else:
            text = (structured[10:-1] if output.wrapped else structured).decode()  # in {"result":…}
        return CallToolResult(content=[TextContent(text=text)], structured_content=Raw(structured))
    if value is None:
        return CallToolResult(content=[])
    if isinstance(value, dict):
        # Objects are also sent as structured content, with or without annotation.
        data = to_json(value, name)
        return CallToolResult(
            content=[TextContent(text=data.decode())], structured_content=Raw(data)
        )
    return CallToolResult(content=content_blocks(value, name))


def encoded_tool_result(value: Any, output: Output) -> EncodedToolResult:
    """Return what `tool_result` returns, encoded, without making the objects."""
    encode = output.encode
    structured = encode(value)
    shown = value
    if type(value) is not str:
        shown = (structured[10:-1] if output.wrapped else structured).decode()
    return EncodedToolResult(
        b'{"content":[{"type":"text","text":%b}],"structuredContent":%b}'
        % (_to_json(shown), structured)
    )


def open_result(value: Any, output: Output | None, name: str) -> CallToolResult:
    """Return the result of a tool whose annotation is a list of any values."""
    if _is_block(value) or (isinstance(value, (list, tuple)) and any(map(_is_block, value))):
        return CallToolResult(content=content_blocks(value, name))
    return tool_result(value, output, name)


def whole_result(value: ToolResult, name: str) -> CallToolResult:
    """Return the result that a tool has put together itself."""
    content: list[ContentBlock] = []
    structured: Any = value.structured_content
    if structured is not None:
        structured = Raw(to_json(structured, name))
        content = [TextContent(text=bytes(structured).decode())]
    if isinstance(value.content, (list, tuple)):
        content = [content_block(item, name) for item in value.content]
    elif value.content is not None:
        content = [content_block(value.content, name)]
    return CallToolResult(
        content=content,
        structured_content=structured,
        is_error=value.is_error,
        meta=value.meta,
    )


def content_blocks(value: Any, name: str) -> list[ContentBlock]:
    """Convert a return value to content: blocks are kept, text becomes text, the rest JSON."""
    if isinstance(value, (list, tuple)) and any(_is_block(item) for item in value):
        return [content_block(item, name) for item in value]
    return [content_block(value, name)]


def _is_block(value: Any) -> bool:
    return isinstance(value, (*CONTENT_TYPES, Media))


def content_block(value: Any, name: str) -> ContentBlock:
    """Convert one value to one content block."""
    if isinstance(value, CONTENT_TYPES):
        return value
    if isinstance(value, Media):
        return value.block()
    if isinstance(value, str):
        return TextContent(text=value)
    if isinstance(value, bytes):
        return Media(value, "application/octet-stream").block()
    return TextContent(text=to_json(value, name).decode())


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


def read_result(value: Any, uri: str, mime_type: str | None) -> ReadResourceResult:
    """Return the result of a resource that returned `value`."""
    if isinstance(value, ReadResourceResult):
        return value
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], ResourceContents):
        return ReadResourceResult(contents=list(value))
    return ReadResourceResult(contents=[_contents(value, uri, mime_type)])


def _contents(value: Any, uri: str, mime_type: str | None) -> ResourceContents:
    if isinstance(value, ResourceContents):
        return value
    if isinstance(value, Media):
        value, mime_type = value.data, value.mime_type
    if isinstance(value, (bytes, bytearray, memoryview)):
        blob = b64encode(value).decode("ascii")
        return ResourceContents(
            uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob
        )
    if isinstance(value, str):
        return ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value)
    text = to_json(value, uri).decode()
    return ResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)


def prompt_result(value: Any, name: str, description: str | None) -> types.GetPromptResult:
    """Return the result of a prompt that returned text, messages, or a list of either."""
    if isinstance(value, types.GetPromptResult):
        return value
    items: Iterable[Any] = value if isinstance(value, (list, tuple)) else [value]
    return types.GetPromptResult(
        messages=[_message(item, name) for item in items], description=description
    )


def _message(value: Any, name: str) -> types.PromptMessage:
    if isinstance(value, types.PromptMessage):
        return value
    if isinstance(value, Message):
        return types.PromptMessage(role=value.role, content=content_block(value.content, name))
    if isinstance(value, dict) and "role" in value:
        try:
            return msgspec.convert(value, types.PromptMessage)
        except msgspec.ValidationError as error:
            raise OutputError(f"prompt `{name}` returned an invalid message: {error}") from None
    return types.PromptMessage(role="user", content=content_block(value, name))
