"""A client for every scenario of the official conformance suite that needs no authorization.

    MCP_CONFORMANCE_SCENARIO=tools_call python examples/everything/client.py http://localhost:3000/mcp

The suite starts it once per scenario, with the scenario's name and the protocol version in the
environment and the address of a server of its own as the last argument.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from mcpearl import Client
from mcpearl.types import ElicitRequestParams, Tool

VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "auto")
PATIENCE = 60.0  # seconds to connect: the suite runs all its scenarios at once
Scenario = Callable[[str], Coroutine[Any, Any, None]]


async def connect(address: str) -> None:
    """Connect, and see who is there."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        print(client.server_info, client.protocol_version)


async def call_tools(address: str) -> None:
    """List the tools and call each with something its schema allows."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        async for tool in client.tools():
            result = await client.call_tool(tool.name, example_arguments(tool))
            print(tool.name, "->", result.content)


async def list_tools(address: str) -> None:
    """List the tools; whatever their schemas refer to, nothing of it is fetched."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        print([tool.name async for tool in client.tools()])


async def negotiate(address: str) -> None:
    """Find out what the server speaks, and say what this client can be asked."""
    async with Client(
        address,
        connect_timeout=PATIENCE,
        sampling=lambda asked: "I am no model.",
        elicitation=lambda form: None,
        roots=["file:///tmp"],
    ) as client:
        print(client.server_info, client.protocol_version)
        await client.ping()


async def use_everything(address: str) -> None:
    """Call every tool, read every resource, get every prompt."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        async for tool in client.tools():
            await client.call_tool(tool.name, example_arguments(tool))
        async for resource in client.resources():
            await client.read_resource(resource.uri)
        async for prompt in client.prompts():
            await client.get_prompt(prompt.name)


async def call_as_told(address: str) -> None:
    """Make the calls the suite gives; some arguments travel in headers too."""
    told = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        print([tool.name async for tool in client.tools()])
        for call in told["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def accept_defaults(address: str) -> None:
    """Answer forms with nothing; what they have defaults for is filled in."""
    async with Client(
        address, protocol=VERSION, connect_timeout=PATIENCE, elicitation=lambda form: {}
    ) as client:
        async for tool in client.tools():
            result = await client.call_tool(tool.name)
            print(tool.name, "->", result.content)


async def confirm(address: str) -> None:
    """Call tools that ask back, all at once: each gets its own answers and state."""

    def answer(form: ElicitRequestParams) -> dict[str, Any]:
        print("asked:", form.message)
        return {"confirmed": True}

    async with Client(
        address, protocol=VERSION, connect_timeout=PATIENCE, elicitation=answer
    ) as client:
        tools = [tool.name async for tool in client.tools()]
        await asyncio.gather(*(client.call_tool(name) for name in tools))


async def echo_schema(address: str) -> None:
    """Send a tool's schema back as it was understood."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        schemas = {tool.name: tool.input_schema async for tool in client.tools()}
        arguments = {"schema": schemas["json_schema_2020_12_tool"]}
        await client.call_tool("json_schema_echo", arguments)


def example_arguments(tool: Tool) -> dict[str, Any]:
    """Make up arguments from a schema."""
    examples = {"string": "example", "number": 2, "integer": 3, "boolean": True}
    properties = tool.input_schema.get("properties", {})
    return {name: examples.get(schema.get("type")) for name, schema in properties.items()}


SCENARIOS: dict[str, Scenario] = {
    "initialize": connect,
    "tools_call": call_tools,
    "sse-retry": call_tools,
    "elicitation-sep1034-client-defaults": accept_defaults,
    "request-metadata": negotiate,
    "sep-2322-client-request-state": confirm,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_tools,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
}


def main() -> None:
    """Run the scenario the environment names."""
    name = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    scenario = SCENARIOS.get(name)
    if scenario is None or len(sys.argv) < 2:
        sys.exit(f"there is no scenario {name!r}; there are: {', '.join(SCENARIOS)}")
    asyncio.run(scenario(sys.argv[-1]))


if __name__ == "__main__":
    main()
