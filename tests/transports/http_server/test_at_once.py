"""Calls whose tools never wait: they are answered in place, and nothing else about them differs."""

import asyncio
from collections.abc import Set
from contextvars import ContextVar
from typing import Any

import pytest

from mcpearl import Context, Server, ToolError
from mcpearl.server.handler import Handler
from mcpearl.types import CallToolRequestParams, CallToolResult, TextContent
from tests.transports.raw_http import HANGS, Raw, Response, Session, serving
from tests.waiting import eventually

VARIABLE: ContextVar[str] = ContextVar("variable", default="nothing")


def _has_task() -> bool:
    """Whether the current task is one that is still running; code of a tool that asks is not in place."""
    task = asyncio.current_task()
    return task is not None and not task.done()


def make_app() -> Server:
    app = Server("at once")

    @app.tool
    async def has_task() -> bool:
        return _has_task()

    @app.tool
    async def waits() -> bool:
        await asyncio.sleep(0)
        return _has_task()

    @app.tool
    async def remember(text: str) -> str:
        before = VARIABLE.get()
        VARIABLE.set(text)
        return before

    @app.tool
    async def fail() -> str:
        raise ToolError("not today")

    @app.tool
    async def leave() -> str:
        raise SystemExit(3)

    return app


async def call(client: Raw, tool: str, arguments: dict[str, Any] | None = None) -> Response:
    if isinstance(client, Session):
        return await client.use(tool, arguments)
    return await client.call(tool, arguments)


@pytest.fixture(params=["modern", "session"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def of_era(client: Raw, era: str) -> Raw:
    return await client.initialize() if era == "session" else client


async def test_only_a_tool_that_may_wait_has_a_task(era: str) -> None:
    async with serving(make_app()) as server:
        client = await of_era(server, era)
        for tool, expected in (("has_task", False), ("waits", True)):
            for _ in range(2):  # the first has a head that is not known yet
                answer = await call(client, tool)
                assert answer.json["result"]["structuredContent"] == {"result": expected}


async def test_each_call_has_a_context_of_its_own(era: str) -> None:
    async with serving(make_app()) as server:
        client = await of_era(server, era)
        for text in ("one", "two"):
            answer = await call(client, "remember", {"text": text})
            assert answer.json["result"]["structuredContent"] == {"result": "nothing"}
    assert VARIABLE.get() == "nothing"


@pytest.mark.parametrize("tool", ["fail", "leave"])
async def test_what_a_tool_raises_ends_only_its_call(era: str, tool: str) -> None:
    async with serving(make_app()) as server:
        client = await of_era(server, era)
        for _ in range(2):
            answer = await call(client, tool)
            assert answer.status == 200 and answer.json["result"]["isError"]
        assert "isError" not in (await call(client, "has_task")).json["result"]


async def test_a_session_that_has_ended_is_refused_although_the_head_is_known() -> None:
    async with serving(make_app()) as server:
        session = await server.initialize()
        assert [(await session.use("has_task")).status for _ in range(2)] == [200, 200]
        assert (await session.delete()).status == 204
        assert (await session.use("has_task")).status == 404


class Late(Handler):
    """A handler that says its tool never waits, and is wrong."""

    at_once: Set[str] = frozenset({"wait"})

    def __init__(self) -> None:
        self.begun = 0
        self.ended: list[str] = []
        self.go = asyncio.Event()

    async def call_tool(self, params: CallToolRequestParams, ctx: Context) -> CallToolResult:
        self.begun += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("returned")
        return CallToolResult(content=[TextContent(text="there")])


async def test_a_call_that_waits_after_all_is_answered(era: str) -> None:
    handler = Late()
    async with serving(Server("late", handler=handler)) as server:
        client = await of_era(server, era)
        for number in (1, 2):
            asked = asyncio.create_task(call(client, "wait"))
            await eventually(lambda number=number: handler.begun == number)
            handler.go.set()
            answer = await asyncio.wait_for(asked, HANGS)
            assert answer.json["result"]["content"][0]["text"] == "there"
            handler.go.clear()
    assert handler.ended == ["returned", "returned"]


async def test_a_call_that_waits_after_all_is_cancelled_by_its_client() -> None:
    handler = Late()
    async with serving(Server("late", handler=handler)) as server:
        session = await server.initialize()
        asked = asyncio.create_task(session.use("wait", id=7))
        await eventually(lambda: handler.begun == 1)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await session.post(cancel)).status == 202
        await eventually(lambda: handler.ended == ["cancelled"])
        stream = await asyncio.wait_for(asked, HANGS)
        assert stream.status == 200 and await stream.rest() == []
