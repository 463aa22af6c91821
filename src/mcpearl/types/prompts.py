"""Prompts: message templates a server offers for users to pick."""

from typing import Any

import msgspec

from mcpearl.types.base import (
    Icon,
    InputResponseRequestParams,
    PaginatedResult,
    Result,
    Role,
    Wire,
)
from mcpearl.types.content import ContentBlock


class PromptArgument(Wire, kw_only=True):
    """A value a prompt takes."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Wire, kw_only=True):
    """One prompt: its name and the arguments it takes."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PromptMessage(Wire, kw_only=True):
    """One message of a prompt and who speaks it."""

    role: Role
    content: ContentBlock


class ListPromptsResult(PaginatedResult, kw_only=True):
    """A page of the prompts of a server."""

    prompts: list[Prompt]


class GetPromptRequestParams(InputResponseRequestParams, kw_only=True):
    """Asks for a prompt with its arguments filled in."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptResult(Result, kw_only=True):
    """The messages of a prompt."""

    messages: list[PromptMessage]
    description: str | None = None
