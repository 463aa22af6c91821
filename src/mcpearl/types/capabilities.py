"""Capabilities: what client and server announce to each other.

A capability without settings is an empty object, so `{}` means "yes" and None means "no".
"""

from typing import Any, Final

from mcpearl.types.base import Wire

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"


class ListChangedCapability(Wire, kw_only=True):
    """A list; with `list_changed`, the peer is notified of changes."""

    list_changed: bool | None = None


class ResourcesCapability(ListChangedCapability, kw_only=True):
    """Resources, and whether a client can subscribe to single ones."""

    subscribe: bool | None = None


class RootsCapability(ListChangedCapability, kw_only=True):
    """Roots, and whether the client notifies the server of changes."""


class SamplingCapability(Wire, kw_only=True):
    """Sampling, and whether it supports context and tools."""

    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None


class ElicitationCapability(Wire, kw_only=True):
    """Elicitation by form and by URL; if neither is named, by form."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ToolsTasksCapability(Wire, kw_only=True):
    """The tool requests that can run as tasks."""

    call: dict[str, Any] | None = None


class SamplingTasksCapability(Wire, kw_only=True):
    """The sampling requests that can run as tasks."""

    create_message: dict[str, Any] | None = None


class ElicitationTasksCapability(Wire, kw_only=True):
    """The elicitation requests that can run as tasks."""

    create: dict[str, Any] | None = None


class TaskRequestsCapability(Wire, kw_only=True):
    """The requests that can run as tasks: tool calls in a server, the others in a client."""

    tools: ToolsTasksCapability | None = None
    sampling: SamplingTasksCapability | None = None
    elicitation: ElicitationTasksCapability | None = None


class TasksCapability(Wire, kw_only=True):
    """Tasks as defined by 2025-11-25."""

    requests: TaskRequestsCapability | None = None
    cancel: dict[str, Any] | None = None
    list: dict[str, Any] | None = None


class ClientCapabilities(Wire, kw_only=True):
    """Capabilities of a client."""

    experimental: dict[str, dict[str, Any]] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: TasksCapability | None = None
    extensions: dict[str, dict[str, Any]] | None = None


class ServerCapabilities(Wire, kw_only=True):
    """Capabilities of a server."""

    experimental: dict[str, dict[str, Any]] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: ListChangedCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ListChangedCapability | None = None
    tasks: TasksCapability | None = None
    extensions: dict[str, dict[str, Any]] | None = None
