"""Content blocks, of which tool results, prompt messages and sampling messages consist.

Blocks are told apart by their `type` member, which is the tag of the struct. It is a field too, so
that a block can be asked for it and made with it, as in `TextContent(type="text", text="…")`; as a
field it always has its default and is not sent again.
"""

from typing import Any, Final, Literal

import msgspec

from mcpearl.types.base import Annotations, Wire
from mcpearl.types.resources import Resource, ResourceContents

_TAG: Final = "*type"  # no member of this name is sent


class TextContent(Wire, kw_only=True, tag_field="type", tag="text"):
    """Text."""

    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    type: Literal["text"] = msgspec.field(default="text", name=_TAG)


class ImageContent(Wire, kw_only=True, tag_field="type", tag="image"):
    """An image, in base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    type: Literal["image"] = msgspec.field(default="image", name=_TAG)


class AudioContent(Wire, kw_only=True, tag_field="type", tag="audio"):
    """Audio, in base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    type: Literal["audio"] = msgspec.field(default="audio", name=_TAG)


class ResourceLink(Resource, kw_only=True, tag_field="type", tag="resource_link"):
    """A reference to a resource, which the server need not list."""

    type: Literal["resource_link"] = msgspec.field(default="resource_link", name=_TAG)


class EmbeddedResource(Wire, kw_only=True, tag_field="type", tag="resource"):
    """The contents of a resource, embedded."""

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    type: Literal["resource"] = msgspec.field(default="resource", name=_TAG)


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


class ToolUseContent(Wire, kw_only=True, tag_field="type", tag="tool_use"):
    """A model's request, during sampling, to call a tool with this input."""

    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    type: Literal["tool_use"] = msgspec.field(default="tool_use", name=_TAG)


class ToolResultContent(Wire, kw_only=True, tag_field="type", tag="tool_result"):
    """The result of the tool call requested by the `ToolUseContent` with this `tool_use_id`."""

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = None
    is_error: bool | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    type: Literal["tool_result"] = msgspec.field(default="tool_result", name=_TAG)


SamplingMessageContentBlock = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
)
