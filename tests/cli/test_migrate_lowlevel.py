"""`mcpearl migrate` on servers of the low-level classes of `mcp` 1 and 2."""

import sys
from pathlib import Path

from tests.cli.running import mcpearl

LOW_LEVEL = """
import asyncio

import mcp.server.stdio
from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.types import GetPromptResult, Prompt, PromptMessage, Resource, TextContent, Tool
from pydantic import AnyUrl

server: Server = Server("low")


@server.list_tools()
async def list_tools() -> list[Tool]:
    schema = {"type": "object", "properties": {"a": {}, "fail": {}}}
    return [Tool(name="echo", description="Echoes.", inputSchema=schema)]


@server.call_tool()
async def call_tool(name: str, arguments: dict) -> list[TextContent]:
    if "fail" in arguments:
        raise ValueError("it failed")
    return [TextContent(type="text", text=f"{name} {arguments}")]


@server.list_resources()
async def list_resources() -> list[Resource]:
    return [Resource(uri="note://a", name="a", mimeType="text/plain")]


@server.read_resource()
async def read_resource(uri: AnyUrl) -> str:
    return f"{uri.scheme} of {uri}"


@server.list_prompts()
async def list_prompts() -> list[Prompt]:
    return [Prompt(name="hi")]


@server.get_prompt()
async def get_prompt(name: str, arguments: dict | None) -> GetPromptResult:
    text = TextContent(type="text", text=name)
    return GetPromptResult(messages=[PromptMessage(role="user", content=text)])


async def main():
    async with mcp.server.stdio.stdio_server() as (read_stream, write_stream):
        print("starting")
        await server.run(
            read_stream,
            write_stream,
            InitializationOptions(
                server_name="low",
                server_version="1.2.3",
                capabilities=server.get_capabilities(NotificationOptions(), {}),
            ),
        )


if __name__ == "__main__":
    asyncio.run(main())
"""

LOW_LEVEL_2 = """
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams
from mcp.types import TextContent, Tool


async def tools(ctx: ServerRequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return ListToolsResult(tools=[Tool(name="echo", input_schema=schema)])


async def call(ctx: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=params.arguments["text"])])


def build() -> Server:
    return Server("low", on_list_tools=tools, on_call_tool=call)


app = build()
"""


def test_a_low_level_server_of_mcp_1_runs_afterwards(tmp_path: Path):
    file = tmp_path / "low.py"
    file.write_text(LOW_LEVEL)
    done = mcpearl("migrate", file, "--write")
    assert (done.code, "by hand" in done.out) == (0, False), done.out
    assert (tmp_path / "low.py.bak").read_text() == LOW_LEVEL
    assert "mcp." not in file.read_text().replace("import mcpearl", "")
    target = f"{sys.executable} {file}"  # the file's own way to be served
    assert mcpearl("call", target, "echo", "a=1").out == "echo {'a': 1}\n"
    failed = mcpearl("call", file, "echo", "fail=1")
    assert (failed.code, "it failed" in failed.out + failed.err) == (1, True)
    assert mcpearl("read", file, "note://a").out == "note of note://a"
    assert "hi" in mcpearl("prompt", file, "hi").out
    assert "low 1.2.3" in mcpearl("ping", file).out


def test_a_low_level_server_of_mcp_2_runs_afterwards(tmp_path: Path):
    file = tmp_path / "low.py"
    file.write_text(LOW_LEVEL_2)
    assert mcpearl("migrate", file, "--write").code == 0
    assert mcpearl("call", file, "echo", "text=hello").out == "hello\n"
