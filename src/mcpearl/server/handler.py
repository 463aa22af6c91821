"""What answers requests: a class with one method for each.

Override what you serve; the server announces exactly the capabilities whose methods are overridden.
The decorators of `Server` fill a handler of this shape too (see `registry`).
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
    """Subclass it and override what the server shall do.

    >>> class Echo(Handler):
    ...     async def list_tools(self, cursor, ctx):
    ...         return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])
    ...
    ...     async def call_tool(self, params, ctx):
    ...         return CallToolResult(content=[TextContent(text=str(bytes(params.arguments)))])
    >>> Server("echo", handler=Echo()).run()
    """

    async def list_tools(self, cursor: str | None, ctx: Context) -> ListToolsResult:
        """Give a page of the tools."""
        return ListToolsResult(tools=[])

    async def call_tool(
        self, params: CallToolRequestParams, ctx: Context
    ) -> CallToolResult | Result:
        """Run a tool."""
        raise _not_here("tools/call")

    async def list_resources(self, cursor: str | None, ctx: Context) -> ListResourcesResult:
        """Give a page of the resources."""
        return ListResourcesResult(resources=[])

    async def list_resource_templates(
        self, cursor: str | None, ctx: Context
    ) -> ListResourceTemplatesResult:
        """Give a page of the resource templates."""
        return ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(self, uri: str, ctx: Context) -> ReadResourceResult | Result:
        """Read a resource."""
        raise ResourceNotFound(uri)

    async def subscribe(self, uri: str, ctx: Context) -> None:
        """Agree that the caller follows a resource; raise to refuse."""

    async def unsubscribe(self, uri: str, ctx: Context) -> None:
        """Note that the caller no longer follows a resource."""

    async def list_prompts(self, cursor: str | None, ctx: Context) -> ListPromptsResult:
        """Give a page of the prompts."""
        return ListPromptsResult(prompts=[])

    async def get_prompt(
        self, name: str, arguments: dict[str, str], ctx: Context
    ) -> GetPromptResult | Result:
        """Fill in a prompt."""
        raise _not_here("prompts/get")

    async def complete(self, params: CompleteRequestParams, ctx: Context) -> CompleteResult:
        """Suggest how an argument could go on."""
        raise _not_here("completion/complete")

    def capabilities(self) -> ServerCapabilities:
        """Say what this handler can do: what its class overrides."""
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
    """Route an admitted request to the method of the handler that answers it."""
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
