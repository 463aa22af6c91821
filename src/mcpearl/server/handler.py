"""The handler of a server: a class with one method per request.

Override the methods you serve; the server announces exactly the capabilities whose methods are
overridden. The registry behind the decorators of `Server` is such a handler too.
"""

from typing import Any

from mcpearl.protocol.errors import McpError, ResourceNotFound
from mcpearl.server.context import Context
from mcpearl.types.base import Result
from mcpearl.types.capabilities import (
    ListChangedCapability,
    ResourcesCapability,
    ServerCapabilities,
)
from mcpearl.types.completion import CompleteRequestParams, CompleteResult
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND
from mcpearl.types.prompts import GetPromptResult, ListPromptsResult
from mcpearl.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
)
from mcpearl.types.tools import CallToolRequestParams, CallToolResult, ListToolsResult


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

    async def list_tools(self, cursor: str | None, ctx: Context) -> ListToolsResult:
        """Return a page of the tools.

        Args:
            cursor: The `next_cursor` of the page before; None for the first page.
            ctx: The context of the request.
        """
        return ListToolsResult(tools=[])

    async def call_tool(
        self, params: CallToolRequestParams, ctx: Context
    ) -> CallToolResult | Result:
        """Run a tool.

        Args:
            params: The tool's name, and its arguments as raw JSON.
            ctx: The context of the request.
        """
        raise _not_here("tools/call")

    async def list_resources(self, cursor: str | None, ctx: Context) -> ListResourcesResult:
        """Return a page of the resources.

        Args:
            cursor: The `next_cursor` of the page before; None for the first page.
            ctx: The context of the request.
        """
        return ListResourcesResult(resources=[])

    async def list_resource_templates(
        self, cursor: str | None, ctx: Context
    ) -> ListResourceTemplatesResult:
        """Return a page of the resource templates.

        Args:
            cursor: The `next_cursor` of the page before; None for the first page.
            ctx: The context of the request.
        """
        return ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(self, uri: str, ctx: Context) -> ReadResourceResult | Result:
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

    async def list_prompts(self, cursor: str | None, ctx: Context) -> ListPromptsResult:
        """Return a page of the prompts.

        Args:
            cursor: The `next_cursor` of the page before; None for the first page.
            ctx: The context of the request.
        """
        return ListPromptsResult(prompts=[])

    async def get_prompt(
        self, name: str, arguments: dict[str, str], ctx: Context
    ) -> GetPromptResult | Result:
        """Return the messages of a prompt.

        Args:
            name: The name of the prompt.
            arguments: Its arguments.
            ctx: The context of the request.
        """
        raise _not_here("prompts/get")

    async def complete(self, params: CompleteRequestParams, ctx: Context) -> CompleteResult:
        """Return suggestions for an argument of a prompt or resource template.

        Args:
            params: The argument, and what it belongs to.
            ctx: The context of the request.
        """
        raise _not_here("completion/complete")

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


async def perform(handler: Handler, method: str, params: Any, ctx: Context) -> Result:
    """Call the handler's method for an admitted request."""
    match method:
        case "tools/call":
            return await handler.call_tool(params, ctx)
        case "resources/read":
            return await handler.read_resource(params.uri, ctx)
        case "prompts/get":
            return await handler.get_prompt(params.name, params.arguments or {}, ctx)
        case "tools/list":
            return await handler.list_tools(params.cursor, ctx)
        case "resources/list":
            return await handler.list_resources(params.cursor, ctx)
        case "resources/templates/list":
            return await handler.list_resource_templates(params.cursor, ctx)
        case "prompts/list":
            return await handler.list_prompts(params.cursor, ctx)
        case "completion/complete":
            return await handler.complete(params, ctx)
        case "resources/subscribe":
            await handler.subscribe(params.uri, ctx)
            return Result()
        case "resources/unsubscribe":
            await handler.unsubscribe(params.uri, ctx)
            return Result()
    raise _not_here(method)
