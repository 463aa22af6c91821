"""Sampling: a server asks the client's model for a message."""

from typing import Any, Literal

import msgspec

from mcpearl.types.base import RequestParams, Result, Role, TaskMetadata, Wire
from mcpearl.types.content import SamplingMessageContentBlock
from mcpearl.types.tools import Tool


class SamplingMessage(Wire, kw_only=True):
    """One message of a conversation with a model: one block, or several."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ModelHint(Wire, kw_only=True):
    """Part of the name of a model that would do."""

    name: str | None = None


class ModelPreferences(Wire, kw_only=True):
    """What matters in the choice of a model; priorities go from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: int | float | None = None
    speed_priority: int | float | None = None
    intelligence_priority: int | float | None = None


class ToolChoice(Wire, kw_only=True):
    """Whether the model may, must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageRequestParams(RequestParams, kw_only=True):
    """What the client's model shall continue, and within which limits."""

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
    """A sampling request as a server puts it into an `InputRequiredResult`."""

    params: CreateMessageRequestParams


class CreateMessageResult(Result, kw_only=True):
    """What the model said, which model it was, and why it stopped."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stop_reason: str | None = None
