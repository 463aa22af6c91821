"""Capabilities: what client and server tell each other they can do.

A capability without settings is an empty object, so `{}` means "yes" and None means "no".
"""

from typing import Any

from mcpearl.types.base import Wire


class ListChangedCapability(Wire, kw_only=True):
    """A list the other side can read; it is told of changes if `list_changed` is true."""

    list_changed: bool | None = None


class ResourcesCapability(ListChangedCapability, kw_only=True):
    """Resources, and whether one can subscribe to a single one."""

    subscribe: bool | None = None


class RootsCapability(ListChangedCapability, kw_only=True):
    """Roots, and whether the client tells when they change."""


class SamplingCapability(Wire, kw_only=True):
    """Sampling, and whether it takes context and tools."""

    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None


class ElicitationCapability(Wire, kw_only=True):
    """Elicitation by form and by URL; neither named means by form."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ToolsTasksCapability(Wire, kw_only=True):
    """Which requests about tools can run as tasks."""

    call: dict[str, Any] | None = None


class SamplingTasksCapability(Wire, kw_only=True):
    """Which requests about sampling can run as tasks."""

    create_message: dict[str, Any] | None = None


class ElicitationTasksCapability(Wire, kw_only=True):
    """Which requests about elicitation can run as tasks."""

    create: dict[str, Any] | None = None


class TaskRequestsCapability(Wire, kw_only=True):
    """What can run as a task: tool calls in a server, the other two in a client."""

    tools: ToolsTasksCapability | None = None
    sampling: SamplingTasksCapability | None = None
    elicitation: ElicitationTasksCapability | None = None


class TasksCapability(Wire, kw_only=True):
    """Tasks as 2025-11-25 has them."""

    requests: TaskRequestsCapability | None = None
    cancel: dict[str, Any] | None = None
    list: dict[str, Any] | None = None


class ClientCapabilities(Wire, kw_only=True):
    """What a client can do for a server."""

    experimental: dict[str, dict[str, Any]] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: TasksCapability | None = None
    extensions: dict[str, dict[str, Any]] | None = None


class ServerCapabilities(Wire, kw_only=True):
    """What a server can do for a client."""

    experimental: dict[str, dict[str, Any]] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: ListChangedCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ListChangedCapability | None = None
    tasks: TasksCapability | None = None
    extensions: dict[str, dict[str, Any]] | None = None
