"""A server written as a class; its tools come from a table instead of functions."""

import asyncio

import msgspec

from mcpearl import Client, Context, Handler, Server
from mcpearl.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    TextContent,
    Tool,
)

GREETINGS = {"en": "Hello", "no": "Hei", "pt": "Olá"}


class Greeter(Handler):
    """One tool per language."""

    async def list_tools(self, cursor: str | None, ctx: Context) -> ListToolsResult:
        """Return one tool per language."""
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        return ListToolsResult(
            tools=[Tool(name=f"greet_{language}", input_schema=schema) for language in GREETINGS]
        )

    async def call_tool(self, params: CallToolRequestParams, ctx: Context) -> CallToolResult:
        """Greet in the language of the tool."""
        arguments = msgspec.json.decode(params.arguments or b"{}")
        greeting = GREETINGS[params.name.removeprefix("greet_")]
        return CallToolResult(content=[TextContent(text=f"{greeting} {arguments['name']}")])


app = Server("greeter", version="1.0.0", handler=Greeter())


async def main() -> None:
    """Greet in every language."""
    async with Client(app) as client:
        async for tool in client.tools():
            result = await client.call_tool(tool.name, {"name": "Ada"})
            print(tool.name, "->", result.content)


if __name__ == "__main__":
    asyncio.run(main())
