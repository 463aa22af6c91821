"""The handler of a server: a class with one method per request.

Override the methods you serve; the server announces exactly the capabilities whose methods are
overridden. The registry behind the decorators of `Server` is such a handler too.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from mcpearl import types
from mcpearl.protocol.errors import McpError, ResourceNotFound
from mcpearl.protocol.events import Caller, Notice
from mcpearl.types.base import Result
from mcpearl.types.capabilities import (
    ListChangedCapability,
    ResourcesCapability,
    ServerCapabilities,
)
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from mcpearl.server.context import Context
    from mcpearl.server.tasks.options import Tasks
    from mcpearl.transports.mirrored_headers import ParameterPath
else:
    Context = ParameterPath = Tasks = Any  # loaded by calls, and by servers that use them


class Handler:
    """Answers requests. Subclass it and override the methods that the server should have.

    >>> class Echo(Handler):
    ...     async def list_tools(self, cursor, ctx):
    ...         return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])
    ...
    ...     async def call_tool(self, params, ctx):
    ...         return CallToolResult(content=[TextContent(text=str(bytes(params.arguments)))])
    >>> Server("echo", handler=Echo()).run()
    """

    mirrored: Mapping[str, Mapping[ParameterPath, str]] | None = None
    """The parameters that tools mirror into HTTP headers, by tool; None to find them with `tool`."""
    at_once: Set[str] = frozenset()
    """The tools whose calls return without waiting; see `Dispatcher.at_once`."""
    scoped = False
    """Whether anything here needs scopes; `scopes_of` is asked only then. Overriding it sets this."""
    tasked = False
    """Whether any tool here can run as a task. Overriding `tasks_of` sets this."""

    def __init_subclass__(cls) -> None:
        """Note whether the subclass declares scopes, and tools that can be tasks."""
        super().__init_subclass__()
        if "tasks_of" in cls.__dict__:
            cls.tasked = True
        if "scopes_of" in cls.__dict__:
            cls.scoped = True

    async def list_tools(self, cursor: str | None, ctx: Context) -> types.ListToolsResult:
        """Return a page of the tools.

        Args:
            cursor: The `next_cursor` of the page before; None for the first page.
            ctx: The context of the request.
        """
        return types.ListToolsResult(tools=[])

    async def call_tool(
        self, params: types.CallToolRequestParams, ctx: Context
    ) -> types.CallToolResult | Result:
        """Run a tool.

        Args:
            params: The tool's name, and its arguments as raw JSON.
            ctx: The context of the request.
        """
        raise _not_here("tools/call")

    async def list_resources(self, cursor: str | None, ctx: Context) -> types.ListResourcesResult:
        """Return a page of the resources.

        Args:
            cursor: The `next_cursor` of the page before; None for the first page.
            ctx: The context of the request.
        """
        return types.ListResourcesResult(resources=[])

    async def list_resource_templates(
        self, cursor: str | None, ctx: Context
    ) -> types.ListResourceTemplatesResult:
        """Return a page of the resource templates.

        Args:
            cursor: The `next_cursor` of the page before; None for the first page.
            ctx: The context of the request.
        """
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(self, uri: str, ctx: Context) -> types.ReadResourceResult | Result:
        """Read a resource.

        Args:
            uri: The URI of the resource.
            ctx: The context of the request.
        """
        raise ResourceNotFound(uri)

    async def subscribe(self, uri: str, ctx: Context) -> None:
        """Accept a subscription of the caller to a resource. Raise to refuse it.

        Args:
            uri: The URI of the resource.
            ctx: The context of the request.
        """

    async def unsubscribe(self, uri: str, ctx: Context) -> None:
        """Note that the caller has ended its subscription to a resource.

        Args:
            uri: The URI of the resource.
            ctx: The context of the request.
        """

    async def list_prompts(self, cursor: str | None, ctx: Context) -> types.ListPromptsResult:
        """Return a page of the prompts.

        Args:
            cursor: The `next_cursor` of the page before; None for the first page.
            ctx: The context of the request.
        """
        return types.ListPromptsResult(prompts=[])

    async def get_prompt(
        self, name: str, arguments: dict[str, str], ctx: Context
    ) -> types.GetPromptResult | Result:
        """Return the messages of a prompt.

        Args:
            name: The name of the prompt.
            arguments: Its arguments.
            ctx: The context of the request.
        """
        raise _not_here("prompts/get")

    async def complete(
        self, params: types.CompleteRequestParams, ctx: Context
    ) -> types.CompleteResult:
        """Return suggestions for an argument of a prompt or resource template.

        Args:
            params: The argument, and what it belongs to.
            ctx: The context of the request.
        """
        raise _not_here("completion/complete")

    def notified(self, notice: Notice, caller: Caller | None) -> None:
        """Take a notification of a client, such as `notifications/roots/list_changed`.

        Args:
            notice: Its method and params.
            caller: The client that sent it; None before a session has begun.
        """

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Return the scopes a caller needs for what a request names.

        Args:
            method: `tools/call`, `prompts/get`, `resources/read` or `resources/subscribe`.
            name: The tool's or prompt's name, or the resource's URI.
        """
        return frozenset()

    def all_scopes(self) -> frozenset[str]:
        """Return every scope that something here needs, for the server's metadata."""
        return frozenset()

    def tool(self, name: str) -> types.Tool | None:
        """Return a tool's definition if it is known without waiting: HTTP headers are checked against it.

        Args:
            name: The tool's name.
        """
        return None

    def tasks_of(self, name: str) -> Tasks | None:
        """Return how a tool runs as a task; None for one that never does.

        Args:
            name: The tool's name.
        """
        return None

    def capabilities(self) -> ServerCapabilities:
        """Return the capabilities whose methods the class overrides."""
        tools = _overrides(self, "list_tools", "call_tool")
        prompts = _overrides(self, "list_prompts", "get_prompt")
        resources = _overrides(self, "list_resources", "list_resource_templates", "read_resource")
        subscribe = _overrides(self, "subscribe")
        changed = ListChangedCapability(list_changed=True)
        return ServerCapabilities(
            tools=changed if tools else None,
            prompts=changed if prompts else None,
            resources=ResourcesCapability(list_changed=True, subscribe=subscribe or None)
            if resources or subscribe
            else None,
            completions={} if _overrides(self, "complete") else None,
            logging={},
        )


def _overrides(handler: Handler, *names: str) -> bool:
    return any(getattr(type(handler), name) is not getattr(Handler, name) for name in names)


def _not_here(method: str) -> McpError:
    return McpError(METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
