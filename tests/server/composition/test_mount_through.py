"""What a mounted part asks of clients, what it announces, and what it refuses, in both eras."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Context, McpError, Server
from mcpearl.auth import Principal
from mcpearl.types import CreateMessageResult, ElicitResult, SamplingMessage, TextContent
from tests.server.wire import ERAS, MODERN, wire

FAR = """
import os
from mcpearl import Server
app = Server("far")
app.add_tool(os.getpid, name="process")
app.run()
"""


def asking() -> Server:
    app = Server("asking")

    @app.tool
    async def sample(ctx: Context) -> str:
        message = SamplingMessage(role="user", content=TextContent(text="hi"))
        answer = await ctx.sample([message], max_tokens=10)
        return f"{answer.model}: {answer.content.text}"  # type: ignore[union-attr]

    @app.tool
    async def roots(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    @app.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in", "https://example.com/login")).action

    return app


@pytest.mark.parametrize("version", ERAS)
async def test_a_part_asks_for_samples_roots_and_visits(version: str) -> None:
    visited = []

    def visit(params: Any) -> ElicitResult:
        visited.append(params.url)
        return ElicitResult(action="accept")

    def model(params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="ho"), model="m")

    app = Server("outer")
    app.mount("part", asking())
    options: Any = {"elicitation": visit, "sampling": model, "roots": ["file:///tmp/here"]}
    async with Client(app, protocol=version, **options) as client:
        assert (await client.call_tool("part__sample")).data == "m: ho"
        assert (await client.call_tool("part__roots")).data == ["file:///tmp/here"]
        assert (await client.call_tool("part__visit")).data == "accept"
    assert visited == ["https://example.com/login"]


def guarded() -> Server:
    app = Server("guarded")

    @app.tool(scopes=["write"])
    def store() -> str:
        return "stored"

    @app.prompt(scopes=["write"])
    def plan() -> str:
        return "plan"

    @app.complete("plan", "x")
    def some(value: str) -> list[str]:
        return ["some"]

    @app.resource("plan://one", scopes=["write"])
    def one() -> str:
        return "one"

    return app


@pytest.mark.parametrize("version", ERAS)
async def test_the_scopes_of_a_part_hold_and_its_refusals_have_the_names_of_the_client(
    version: str,
) -> None:
    middle, app = Server("middle"), Server("outer")
    middle.mount("in", guarded())
    app.mount("mid", middle)
    requests = [
        ("tools/call", {"name": "mid__in__store", "arguments": {}}, "mid__in__store"),
        ("prompts/get", {"name": "mid__in__plan"}, "mid__in__plan"),
        ("resources/read", {"uri": "plan://one"}, "plan://one"),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "mid__in__plan"},
                "argument": {"name": "x", "value": ""},
            },
            "mid__in__plan",
        ),
    ]
    async with wire(app, version, principal=Principal(subject="ann")) as caller:
        assert (await caller.ask("tools/list"))["result"]["tools"] == []
        for method, params, name in requests:
            error = (await caller.ask(method, params))["error"]
            assert f"`{name}` needs the scopes: write" in error["message"]
            assert error["data"] == {"name": name, "requiredScopes": ["write"]}
    allowed = Principal(subject="ann", scopes=frozenset({"write"}))
    async with wire(app, version, principal=allowed) as caller:
        [tool] = (await caller.ask("tools/list"))["result"]["tools"]
        assert tool["name"] == "mid__in__store"
        assert "result" in await caller.call("mid__in__store")


async def test_a_resource_that_a_tool_of_a_part_reads_is_refused_by_its_own_uri() -> None:
    part, app = guarded(), Server("outer")

    @part.tool
    async def look(ctx: Context) -> str:
        try:
            await ctx.read_resource("plan://one")
        except McpError as error:
            return error.message
        return "read"

    app.mount("in", part)
    async with wire(app, principal=Principal(subject="ann")) as caller:
        text = (await caller.call("in__look"))["result"]["content"][0]["text"]
        assert text == "Resource `plan://one` needs the scopes: write"


@pytest.mark.parametrize("version", ERAS)
async def test_changes_of_a_part_are_announced(version: str) -> None:
    part, app = asking(), Server("outer")
    app.mount("part", part)
    async with wire(app, version) as caller:
        if version == MODERN:
            caller.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            assert (await caller.next())["method"] == "notifications/subscriptions/acknowledged"
        part.add_tool(lambda: "new", name="fresh")
        assert (await caller.next())["method"] == "notifications/tools/list_changed"
        tools = (await caller.ask("tools/list"))["result"]["tools"]
        assert "part__fresh" in [tool["name"] for tool in tools]


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("kind", ["entry", "command", "file", "path"])
async def test_a_server_of_another_process_is_mounted(
    kind: str, version: str, tmp_path: Path
) -> None:
    file = tmp_path / "far.py"
    file.write_text(FAR)
    what: Any = {
        "entry": {"command": sys.executable, "args": [str(file)]},
        "command": [sys.executable, str(file)],
        "file": str(file),
        "path": file,
    }[kind]
    app = Server("outer")
    app.mount("far", what)
    async with Client(app, protocol=version) as client:
        assert (await client.call_tool("far__process")).data != os.getpid()
