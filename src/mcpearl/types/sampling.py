"""Sampling: a server requests a message from the client's model."""

from typing import Any, Literal

import msgspec

from mcpearl.types.base import RequestParams, Result, Role, TaskMetadata, Wire
from mcpearl.types.content import SamplingMessageContentBlock
from mcpearl.types.tools import Tool


class SamplingMessage(Wire, kw_only=True):
    """A message of a conversation with a model: one content block, or several."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ModelHint(Wire, kw_only=True):
    """Part of the name of a suitable model."""

    name: str | None = None


class ModelPreferences(Wire, kw_only=True):
    """Preferences for the choice of a model; priorities range from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: int | float | None = None
    speed_priority: int | float | None = None
    intelligence_priority: int | float | None = None


class ToolChoice(Wire, kw_only=True):
    """Whether the model may, must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageRequestParams(RequestParams, kw_only=True):
    """The conversation to continue, and the limits for it."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: int | float | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    task: TaskMetadata | None = None


class CreateMessageRequest(Wire, kw_only=True, tag_field="method", tag="sampling/createMessage"):
    """A sampling request as contained in an `InputRequiredResult`."""

    params: CreateMessageRequestParams


class CreateMessageResult(Result, kw_only=True):
    """The model's message, the model's name, and why it stopped."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stop_reason: str | None = None
