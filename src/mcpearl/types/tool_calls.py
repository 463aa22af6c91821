"""Calls of tools: their params and their results."""

from typing import Any

import msgspec

from mcpearl.types.base import InputResponseRequestParams, Result, TaskMetadata
from mcpearl.types.content import ContentBlock, TextContent


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
