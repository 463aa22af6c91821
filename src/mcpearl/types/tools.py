"""Tools: functions a server lets a model call."""

from typing import Any, Literal

import msgspec

from mcpearl.types.base import (
    Icon,
    InputResponseRequestParams,
    PaginatedResult,
    Result,
    TaskMetadata,
    Wire,
)
from mcpearl.types.content import ContentBlock


class ToolAnnotations(Wire, kw_only=True):
    """What a tool claims about itself; hints, not promises, unless the server is trusted."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire, kw_only=True):
    """Whether a tool may, must or cannot be run as a task."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(Wire, kw_only=True):
    """One tool: its name, what it does, and JSON Schemas of what goes in and comes out."""

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ListToolsResult(PaginatedResult, kw_only=True):
    """A page of the tools of a server."""

    tools: list[Tool]


class CallToolRequestParams(InputResponseRequestParams, kw_only=True):
    """Calls a tool.

    `arguments` stay JSON, so that they are decoded once, into the type the tool wants.
    """

    name: str
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    task: TaskMetadata | None = None


class CallToolResult(Result, kw_only=True):
    """What a tool gave back: content for a model, and the same as data when it has a schema.

    A tool that failed says so with `is_error` and content that helps to do better.
    """

    content: list[ContentBlock]
    structured_content: Any = msgspec.UNSET
    is_error: bool | None = None
