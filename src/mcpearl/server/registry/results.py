"""Converts the return values of handlers to results of the protocol.

Handlers return plain Python values; results, contents and messages of the specification are passed
through. A value without a JSON form raises `OutputError`. This module is loaded for the first result
that is made of objects; `encoded` has what most calls need.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from mcpearl import types
from mcpearl.schema.errors import OutputError
from mcpearl.schema.output import Output
from mcpearl.server.registry.encoded import to_json
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
from mcpearl.types.tool_calls import CallToolResult

CONTENT_TYPES = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)


def is_content(annotation: Any) -> bool:
    """Return whether a return annotation is content, for which no schema is published."""
    if not isinstance(annotation, type):
        return annotation is ContentBlock
    return issubclass(annotation, (*CONTENT_TYPES, CallToolResult, ToolResult, bytes, Media))


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
