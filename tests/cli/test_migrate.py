"""`migrate`: programs of FastMCP and the official SDK, rewritten, and run."""

from pathlib import Path

import pytest

from mcpearl.cli.migrating.rewrite import rewrite
from tests.cli.running import mcpearl

FASTMCP = '''
"""A server of FastMCP."""

from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp.types import TextContent, ToolAnnotations

mcp = FastMCP("Démo", "Adds numbers", mask_error_details=True)  # a comment
sub = FastMCP()


@mcp.tool("plus", annotations=ToolAnnotations(readOnlyHint=True))
async def add(a: int, b: int, ctx: Context) -> int:
    """Add."""
    await ctx.report_progress(1, 2)
    return a + b


@sub.tool()
def fail() -> list[TextContent]:
    raise ToolError("no")


mcp.mount(sub, prefix="sub")


@mcp.tool
async def inside() -> str:
    async with Client(sub) as client:
        try:
            await client.call_tool("fail", {})
        except ToolError as error:
            return f"raised {error}"
    return "did not raise"


if __name__ == "__main__":
    mcp.run(transport="http", port=9999, show_banner=False)
'''

OFFICIAL = """
import mcp.types as types
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("official", instructions="Echoes.")


@server.tool()
def echo(text: str) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.ResourceLink(type="resource_link", uri="a://b", name=text, mimeType="text/plain")],
        isError=False,
    )


if __name__ == "__main__":
    server.run(transport="stdio")
"""


def test_a_server_of_fastmcp_runs_afterwards(tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text(FASTMCP)
    shown = mcpearl("migrate", file)
    assert shown.code == 0, shown.err
    assert (
        '+mcp = Server("Démo", instructions="Adds numbers", mask_errors=True)  # a comment'
        in shown.out
    )
    assert file.read_text() == FASTMCP
    assert mcpearl("migrate", file, "--write").code == 0
    assert mcpearl("call", file, "plus", "a=2", "b=3").out == "5\n"
    assert mcpearl("call", file, "inside").out == "raised no\n"
    assert mcpearl("call", file, "sub__fail").code == 1
    assert mcpearl("migrate", file, "--json").json["files"] == []


def test_a_server_of_the_official_sdk_runs_afterwards(tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text(OFFICIAL)
    assert mcpearl("migrate", tmp_path, "--write").code == 0
    done = mcpearl("call", file, "echo", "text=hello", "--json").json
    assert done["content"][0]["mimeType"] == "text/plain"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "from mcp.server import MCPServer\ns = MCPServer('x')",
            "from mcpearl import Server\ns = Server('x')",
        ),
        ("import fastmcp\ns = fastmcp.FastMCP('x')", "import mcpearl\ns = mcpearl.Server('x')"),
        (
            "from fastmcp import FastMCP as F\ns = F('x')",
            "from mcpearl import Server as F\ns = F('x')",
        ),
        (
            "from fastmcp import FastMCP\nclass Server: ...\ns = FastMCP('x')",
            "from mcpearl import Server as McpearlServer\nclass Server: ...\ns = McpearlServer('x')",
        ),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x')\ns.run(show_banner=False, port=1)",
            "from mcpearl import Server\ns = Server('x')\ns.run(port=1)",
        ),
        (
            "from fastmcp import FastMCP\ndef f(s: FastMCP):\n    return s.http_app(path='/x')",
            "from mcpearl import Server\ndef f(s: Server):\n    return s.asgi(path='/x')",
        ),
        ("import json\nx.inputSchema", "import json\nx.inputSchema"),
        ("from .mcp import FastMCP\nFastMCP()", "from .mcp import FastMCP\nFastMCP()"),
    ],
)
def test_what_is_rewritten(before: str, after: str):
    assert rewrite(before) == (after, [])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("from mcp import ClientSession", "`async with Client(target) as client`"),
        ("from mcp.server.lowlevel import Server", "write a `Handler`"),
        ("from fastmcp import FastMCP\ns = FastMCP('x', port=3)", "it belongs to `app.run(…)` now"),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x', providers=[])",
            "a server has no such option",
        ),
        ("from fastmcp import FastMCP\ns = FastMCP('x')\ns.mount(other)", "give it a name"),
        (
            "from fastmcp import FastMCP\nFastMCP.from_openapi({})",
            "there is no server from an OpenAPI",
        ),
        ("from fastmcp import Context\ndef f(ctx: Context): ctx.fastmcp", "name the server itself"),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x')\ns.run(log_level='x')",
            "MCPEARL_LOG_LEVEL",
        ),
    ],
)
def test_what_is_left_is_listed(source: str, says: str):
    assert any(says in each.text for each in rewrite(source).leftovers)


def test_files_that_cannot_be_read_and_trees(tmp_path: Path):
    (tmp_path / "broken.py").write_text("from fastmcp import (")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "x.py").write_text("from fastmcp import FastMCP")
    done = mcpearl("migrate", tmp_path)
    assert (done.code, done.out) == (0, "")
    assert "broken.py is not changed" in done.err
    assert "nothing of FastMCP or mcp was found" in done.err
