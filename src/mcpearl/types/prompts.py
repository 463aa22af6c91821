"""Prompts: message templates that a server offers to users."""

from typing import Any

import msgspec

from mcpearl.types.base import Icon, InputResponseRequestParams, Result, Role, Wire
from mcpearl.types.content import ContentBlock
from mcpearl.types.pages import Listing, PaginatedResult


class PromptArgument(Wire, kw_only=True):
    """An argument of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Wire, kw_only=True):
    """A prompt: its name and arguments."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PromptMessage(Wire, kw_only=True):
    """A message of a prompt, and its role."""

    role: Role
    content: ContentBlock


class ListPromptsResult(PaginatedResult, Listing[Prompt], kw_only=True):
    """A page of the server's prompts."""

    prompts: list[Prompt]

    def _items(self) -> list[Prompt]:
        return self.prompts


class GetPromptRequestParams(InputResponseRequestParams, kw_only=True):
    """Requests a prompt with its arguments filled in."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptResult(Result, kw_only=True):
    """The messages of a prompt."""

    messages: list[PromptMessage]
    description: str | None = None
