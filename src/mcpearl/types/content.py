"""Content blocks, of which tool results, prompt messages and sampling messages consist.

Blocks are told apart by their `type` member, which is a tag of the struct and not an attribute.
"""

from typing import Any

import msgspec

from mcpearl.types.base import Annotations, Wire
from mcpearl.types.resources import Resource, ResourceContents


class TextContent(Wire, kw_only=True, tag_field="type", tag="text"):
    """Text."""

    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ImageContent(Wire, kw_only=True, tag_field="type", tag="image"):
    """An image, in base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class AudioContent(Wire, kw_only=True, tag_field="type", tag="audio"):
    """Audio, in base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ResourceLink(Resource, kw_only=True, tag_field="type", tag="resource_link"):
    """A reference to a resource, which the server need not list."""


class EmbeddedResource(Wire, kw_only=True, tag_field="type", tag="resource"):
    """The contents of a resource, embedded."""

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


class ToolUseContent(Wire, kw_only=True, tag_field="type", tag="tool_use"):
    """A model's request, during sampling, to call a tool with this input."""

    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ToolResultContent(Wire, kw_only=True, tag_field="type", tag="tool_result"):
    """The result of the tool call requested by the `ToolUseContent` with this `tool_use_id`."""

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = msgspec.UNSET
    is_error: bool | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


SamplingMessageContentBlock = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
)
