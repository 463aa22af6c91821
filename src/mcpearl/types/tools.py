"""Tools: functions that a server lets models call. `tool_calls` has what their calls consist of."""

from typing import Any, Literal

import msgspec

from mcpearl.types.base import Icon, Wire
from mcpearl.types.pages import Listing, PaginatedResult


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
