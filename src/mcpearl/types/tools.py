"""Tools: functions that a server lets models call."""

from typing import Any, Literal

import msgspec

from mcpearl.types.base import (
    Icon,
    InputResponseRequestParams,
    Listing,
    PaginatedResult,
    Result,
    TaskMetadata,
    Wire,
)
from mcpearl.types.content import ContentBlock, TextContent


class ToolAnnotations(Wire, kw_only=True):
    """What a tool claims about itself; only hints, unless the server is trusted."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire, kw_only=True):
    """Whether a tool may, must or cannot run as a task."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(Wire, kw_only=True):
    """A tool: its name, description, and the JSON Schemas of its input and output."""

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ListToolsResult(PaginatedResult, Listing[Tool], kw_only=True):
    """A page of the server's tools."""

    tools: list[Tool]

    def _items(self) -> list[Tool]:
        return self.tools


class CallToolRequestParams(InputResponseRequestParams, kw_only=True):
    """Calls a tool.

    `arguments` stay raw JSON, so that they are decoded only once, into the tool's own type.
    """

    name: str
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    task: TaskMetadata | None = None


class CallToolResult(Result, kw_only=True):
    """The result of a tool: content for a model, and structured content if it has an output schema.

    A tool that failed sets `is_error`; its content then says how to correct the call. Without
    structured content, `structured_content` is None; a null in its place is `msgspec.Raw(b"null")`.
    """

    content: list[ContentBlock]
    structured_content: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of the content, one block per line."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))
