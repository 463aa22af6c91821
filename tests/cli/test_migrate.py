"""`migrate`: programs of FastMCP and the official SDK, rewritten, and run."""

import subprocess
from inspect import signature
from pathlib import Path

import pytest

import mcpearl as mcpearl_package
from mcpearl.cli.migrating import names
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
            "from mcp.server import MCPServer\ns = MCPServer('x', 'X')",
            "from mcpearl import Server\ns = Server('x', title='X')",
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
        (
            "from mcp.server.fastmcp import FastMCP\n"
            "s = FastMCP('x', host='h', port=1, json_response=True)\ns.run(transport='streamable-http')",
            "from mcpearl import Server\ns = Server('x')\n"
            "s.run(transport='streamable-http', host='h', port=1)",
        ),
        (
            "from mcp.server.fastmcp import FastMCP\ns = FastMCP('x', port=1)\ns.run()",
            "from mcpearl import Server\ns = Server('x')\ns.run()",
        ),
        (
            "from mcp.server.fastmcp import FastMCP\ns = FastMCP('x', stateless_http=True, port=1)\n"
            "app = s.streamable_http_app()",
            "from mcpearl import Server\ns = Server('x')\napp = s.asgi(stateless=True)",
        ),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x')\n"
            "async def f(): await s.run_http_async(transport='http', port=1)",
            "from mcpearl import Server\ns = Server('x')\nasync def f(): await s.serve(\"http\", port=1)",
        ),
        (
            "from mcp.server.fastmcp import FastMCP\nclass A:\n"
            "    def __init__(self):\n        self.mcp = FastMCP('x')\n"
            "        self.mcp.custom_route('/')",
            "from mcpearl import Server\nclass A:\n"
            "    def __init__(self):\n        self.mcp = Server('x')\n        self.mcp.route('/')",
        ),
        (
            "from mcp.server.fastmcp import Context\nfrom mcp.server.session import ServerSession\n"
            "def f(ctx: Context[ServerSession, App]): return ctx.request_context.lifespan_context.db",
            "from mcpearl import Context\ndef f(ctx: Context[App]): return ctx.lifespan.db",
        ),
        (
            "from fastmcp import Context\nasync def f(ctx: Context):\n"
            "    ctx.set_state('a', 1)\n    await ctx.set_state('b', 2)\n    return ctx.get_state('a')",
            "from mcpearl import Context\nasync def f(ctx: Context):\n"
            "    ctx.state['a'] = 1\n    await ctx.session.set('b', 2)\n    return ctx.state.get('a')",
        ),
        (
            "from mcp.server.fastmcp.prompts import base\nx: base.Message = base.UserMessage('a')",
            "import mcpearl as base\nx: base.Message = base.UserMessage('a')",
        ),
        (
            "from mcp import McpError\nfrom mcp.types import ErrorData\n"
            "raise McpError(ErrorData(code=1, message='no'))",
            "from mcpearl import McpError\nraise McpError(1, 'no')",
        ),
        (
            "from fastmcp.utilities.logging import get_logger\nget_logger('x')",
            "from logging import getLogger as get_logger\nget_logger('x')",
        ),
        (
            "from fastmcp import Client\nasync def f(c: Client):\n    async with Client('x') as c:\n"
            "        return await c.list_tools(), (await c.read_resource('a'))[0]",
            "from mcpearl import Client\nasync def f(c: Client):\n    async with Client('x') as c:\n"
            "        return [each async for each in c.tools()], "
            "(await c.read_resource('a'))[0]",
        ),
        (
            "from mcp_types import Tool\nTool(name='a', inputSchema={})",
            "from mcpearl.types import Tool\nTool(name='a', input_schema={})",
        ),
        (
            "import mcp_types\nmcp_types.Tool(name='a', inputSchema={})",
            "import mcpearl.types as mcp_types\nmcp_types.Tool(name='a', input_schema={})",
        ),
        (
            "from mcp_types import ElicitRequestURLParams\n"
            "ElicitRequestURLParams(message='m', url='u', elicitationId='i')",
            "from mcpearl.types import ElicitRequestParams as ElicitRequestURLParams\n"
            "ElicitRequestURLParams(message='m', url='u', elicitation_id='i', mode=\"url\")",
        ),
        (
            "from mcp import types\ntypes.ElicitRequestFormParams(message='m', requested_schema=s)",
            "from mcpearl import types\ntypes.ElicitRequestParams(message='m', requested_schema=s)",
        ),
        (
            "from fastmcp import FastMCP\nfrom fastmcp_tasks import TasksExtension\ns = FastMCP('x')\n"
            "s.add_extension(TasksExtension())\n@s.tool(task=True)\nasync def f(): ...",
            "from mcpearl import Server\ns = Server('x')\npass\n"
            "@s.tool(task=True)\nasync def f(): ...",
        ),
        (
            "from mcp.server.mcpserver import Context, MCPServer\n"
            "def life(s: MCPServer[App]): ...\ns = MCPServer[App]('x', 'X', lifespan=life)\n"
            "def f(ctx: Context[App, Any]): ...",
            "from mcpearl import Context, Server\n"
            "def life(s: Server): ...\ns = Server('x', title='X', lifespan=life)\n"
            "def f(ctx: Context[App]): ...",
        ),
        (
            "from mcp.server import MCPServer\ns = MCPServer('x')\n"
            "@s.custom_route('/a', methods=['GET'], include_in_schema=False)\nasync def a(r): ...\n"
            "app = s.streamable_http_app(streamable_http_path='/', stateless_http=True, host='h')",
            "from mcpearl import Server\ns = Server('x')\n"
            "@s.route('/a', methods=['GET'])\nasync def a(r): ...\n"
            "app = s.asgi(path='/', stateless=True)",
        ),
        (
            "from mcp.server import MCPServer\n"
            "from mcp.server.transport_security import TransportSecuritySettings\n"
            "s = MCPServer('x')\n"
            "app = s.streamable_http_app(transport_security=TransportSecuritySettings("
            "allowed_hosts=['h'], allowed_origins=[]))",
            "from mcpearl import Server\ns = Server('x')\n"
            "app = s.asgi(allowed_hosts=['h'], allowed_origins=[])",
        ),
        (
            "from fastmcp import FastMCP\nfrom fastmcp.utilities.tasks import TaskConfig\n"
            "s = FastMCP('x')\n@s.tool(task=TaskConfig(mode='required'))\nasync def f(): ...\n"
            "@s.tool(task=TaskConfig(mode='optional'))\nasync def g(): ...\n"
            "@s.tool(task=TaskConfig(mode='forbidden'))\nasync def h(): ...",
            "from mcpearl import Server\nfrom mcpearl import Tasks as TaskConfig\n"
            "s = Server('x')\n@s.tool(task=TaskConfig(required=True))\nasync def f(): ...\n"
            "@s.tool(task=TaskConfig())\nasync def g(): ...\n"
            "@s.tool(task=False)\nasync def h(): ...",
        ),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x')\n"
            "app = s.http_app(host='h', json_response=True)\n"
            "app = s.http_app(host='h', port=1, path='/')",
            "from mcpearl import Server\ns = Server('x')\napp = s.asgi()\napp = s.asgi(path='/')",
        ),
        ("from fastmcp.tools import Tool\nimport json", "import json"),
        ("def f():\n    from fastmcp.tools import Tool", "def f():\n    pass"),
        ("import json\nx.inputSchema", "import json\nx.inputSchema"),
        ("from .mcp import FastMCP\nFastMCP()", "from .mcp import FastMCP\nFastMCP()"),
    ],
)
def test_what_is_rewritten(before: str, after: str):
    assert rewrite(before) == (after, [])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("from mcp import ClientSession\nClientSession()", "`async with Client(target) as client`"),
        ("from mcp.server.lowlevel import Server", "write a `Handler`"),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x', port=3)",
            "it is an option of `app.run(…)`",
        ),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x', anything=[])",
            "a server has no such option",
        ),
        ("from fastmcp import FastMCP\ns = FastMCP('x')\ns.mount(other)", "give it a name"),
        ("import fastmcp\nfastmcp.settings.port = 1", "fastmcp.settings: it has no counterpart"),
        ("from fastmcp import FastMCP\ns = FastMCP('x', dependencies=['a'])", "pyproject.toml"),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x')\n@s.tool(tags={'a'})\ndef f(): ...",
            "there are no tags",
        ),
        (
            "from mcp.server.fastmcp import FastMCP\ns = FastMCP('x', port=1)\ns.run(transport=t)",
            "where it serves over HTTP, it needs port=1",
        ),
        ("from fastmcp import FastMCP\ns = FastMCP('x')\ns.settings.port = 1", "takes the options"),
        (
            "from fastmcp.server.middleware import Middleware as M\nclass A(M): ...",
            "Server(middleware=[…])",
        ),
        ("from fastmcp.server.auth.providers.github import X\nX()", "it does not log users in"),
        ("from fastmcp.tools import tool\n@tool\ndef f(): ...", "`app.add_tool(function"),
        ("from fastmcp.server.transforms import Namespace\nNamespace('x')", "rewrite=…"),
        ("from mcp.server.mcpserver import Resolve\nResolve(f)", "ask in the function"),
        ("from mcp.server.caching import CacheHint\nCacheHint()", "Server(list_ttl_ms=…)"),
        (
            "from mcp.server import MCPServer\ns = MCPServer('x')\n"
            "app = s.streamable_http_app(transport_security=t)",
            "`allowed_hosts=[…]` and `allowed_origins=[…]`",
        ),
        (
            "from mcp.shared.exceptions import UrlElicitationRequiredError as E\nraise E([])",
            "raise `UrlElicitationRequired(",
        ),
        (
            "from fastmcp.utilities.tasks import TaskConfig\nTaskConfig(poll_interval=t)",
            "`Tasks(…)` has `required=`",
        ),
        (
            "from fastmcp import FastMCP\nfrom fastmcp_tasks import TasksExtension\ns = FastMCP('x')\n"
            "s.add_extension(TasksExtension(url='redis://'))",
            "`Server(store=…)` keeps tasks",
        ),
        ("from fastmcp_tasks.context import get_task_context\nget_task_context()", "task=True"),
        (
            "from fastmcp.server.sessions import UserSession\nasync def f(s: UserSession): ...",
            "use `ctx.session`",
        ),
        (
            "from mcp.server import Server\nclass A:\n    def __init__(self):\n"
            "        self.s = Server('x')\n    def g(self):\n        @self.s.list_tools()\n"
            "        async def f(): ...",
            "write a `Handler`",
        ),
        (
            "from fastmcp import FastMCP\nFastMCP.from_openapi({})",
            "there is no server from an OpenAPI",
        ),
        ("from fastmcp import Context\ndef f(ctx: Context): ctx.fastmcp", "name the server itself"),
        (
            "from fastmcp import Context\ndef f(ctx: Context): ctx.input_responses",
            "`await ctx.elicit(",
        ),
        ("from fastmcp import Context\ndef f(ctx: Context): ctx.nothing", "has no such member"),
        ("from fastmcp import FastMCP\ns = FastMCP('x', list_page_size=n)", "is a number"),
        (
            "from fastmcp import FastMCP\ns = FastMCP('x')\ns.run(log_level='x')",
            "MCPEARL_LOG_LEVEL",
        ),
    ],
)
def test_what_is_left_is_listed(source: str, says: str):
    assert any(says in each.text for each in rewrite(source).leftovers)


def test_a_file_keeps_its_line_ends_and_is_copied_unless_git_has_it(tmp_path: Path):
    file = tmp_path / "s.py"
    content = b"\xef\xbb\xbffrom fastmcp import FastMCP\r\ns = FastMCP('x')\r\n"
    file.write_bytes(content)
    file.chmod(0o755)
    assert mcpearl("migrate", file, "--write").code == 0
    assert file.read_bytes() == b"\xef\xbb\xbffrom mcpearl import Server\r\ns = Server('x')\r\n"
    assert file.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "s.py.bak").read_bytes() == content
    (tmp_path / "s.py.bak").unlink()
    file.write_bytes(content)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=a"]
    for command in (["init", "-q"], ["add", "s.py"], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    assert mcpearl("migrate", file, "--write").code == 0
    assert not (tmp_path / "s.py.bak").exists()


def test_files_that_cannot_be_read_and_trees(tmp_path: Path):
    (tmp_path / "broken.py").write_text("from fastmcp import (")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "x.py").write_text("from fastmcp import FastMCP")
    done = mcpearl("migrate", tmp_path)
    assert (done.code, done.out) == (0, "")
    assert "broken.py is not changed" in done.err
    assert "nothing of FastMCP or mcp was found" in done.err


def test_a_file_that_registers_with_the_server_of_another_is_rewritten(tmp_path: Path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from fastmcp import FastMCP\n\nif True:\n    mcp = FastMCP('shop')\n"
    )
    (package / "site.py").write_text("app = object()\n")
    (package / "tools.py").write_text(
        "from . import mcp\n\n\n@mcp.tool(tags={'a'})\ndef add(a: int) -> int:\n    return a\n"
    )
    (package / "main.py").write_text(
        "from shop import mcp as it\nfrom shop.site import app\n\n"
        "app.mount('a', 'b')\nit.run_http_async()\n"
    )
    assert mcpearl("migrate", str(tmp_path), "--write").code == 1  # `tags` are listed
    assert "@mcp.tool()\n" in (package / "tools.py").read_text()
    main = (package / "main.py").read_text()
    assert 'it.serve("http")' in main
    assert "app.mount('a', 'b')" in main


@pytest.mark.parametrize(
    "made",
    [
        "class Shop:\n    def __init__(self):\n        self.mcp = FastMCP('x')\n\nmcp = Shop().mcp",
        "def make() -> FastMCP:\n    return FastMCP('x')\n\nmcp = make()",
    ],
)
def test_a_server_is_known_by_where_it_comes_from(made: str):
    source = f"from fastmcp import FastMCP\n\n{made}\n\n\n@mcp.custom_route('/a')\ndef a(r): ...\n"
    assert "@mcp.route('/a')" in rewrite(source).text


def test_every_name_that_is_written_exists():
    assert set(names.RENAMED.values()) <= set(mcpearl_package.__all__)
    assert {name for name, _ in names.TYPES_RENAMED.values()} <= names.type_names()
    options = signature(mcpearl_package.Server.__init__).parameters
    assert set(names.SERVER_KEYWORDS.values()) <= set(options)
    for method in (*names.METHODS.values(), "mount"):
        assert callable(getattr(mcpearl_package.Server, method))
    for member in (*names.CONTEXT_RENAMED.values(), *names.REQUEST_CONTEXT.values()):
        assert hasattr(mcpearl_package.Context, member)
    for walk in names.WALKS.values():
        assert callable(getattr(mcpearl_package.Client, walk))
