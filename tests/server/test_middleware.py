"""Middleware: around every call, in order, able to answer, to fail and to see failures."""

import asyncio
from typing import Any

import pytest

from mcpearl import Context, McpError, Server, ToolError
from mcpearl.types import CallToolResult, TextContent
from tests.server.wire import ERAS, LEGACY, text_of, wire


def traced(names: list[str], trace: list[str]) -> Server:
    def layer(name: str) -> Any:
        async def middleware(ctx: Context, call_next: Any) -> Any:
            trace.append(f"{name} in")
            try:
                return await call_next()
            except BaseException as error:
                trace.append(f"{name} {type(error).__name__}")
                raise
            finally:
                trace.append(f"{name} out")

        return middleware

    app = Server("layers", middleware=[layer(name) for name in names])

    @app.tool
    async def work() -> str:
        trace.append("work")
        return "done"

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    app.add_resource("a://1", lambda: "x", name="a")
    return app


@pytest.mark.parametrize("version", ERAS)
async def test_the_first_is_outermost(version: str) -> None:
    trace: list[str] = []
    async with wire(traced(["a", "b"], trace), version) as client:
        await client.call("work")
        assert trace == ["a in", "b in", "work", "b out", "a out"]


@pytest.mark.parametrize("version", ERAS)
async def test_failures_pass_through(version: str) -> None:
    trace: list[str] = []
    async with wire(traced(["a", "b"], trace), version) as client:
        assert text_of(await client.call("fail")) == "no"
        assert trace == ["a in", "b in", "b ToolError", "b out", "a ToolError", "a out"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/read", {"uri": "a://1"}),
        ("resources/read", {"uri": "nothing://"}),
        ("tools/call", {"name": "nothing"}),
    ],
)
async def test_it_is_around_every_method(method: str, params: Any) -> None:
    trace: list[str] = []
    async with wire(traced(["a"], trace)) as client:
        await client.ask(method, params)
    assert trace[0] == "a in"
    assert trace[-1] == "a out"


async def test_it_may_answer_itself() -> None:
    app = Server("layers")

    @app.tool
    async def work() -> str:
        raise AssertionError("never reached")

    @app.middleware
    async def answers(ctx: Context, call_next: Any) -> Any:
        return CallToolResult(content=[TextContent(text="from the cache")])

    async with wire(app) as client:
        assert text_of(await client.call("work")) == "from the cache"


async def test_it_may_refuse_and_change_and_try_again() -> None:
    app = Server("layers")
    tries: list[int] = []

    @app.tool
    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return "at last"

    @app.middleware
    async def guard(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "tools/list":
            raise McpError(-32001, "not for you")
        while True:
            try:
                result = await call_next()
            except RuntimeError:
                continue
            result.meta = {"tries": len(tries)}
            return result

    async with wire(app, LEGACY) as client:
        assert (await client.ask("tools/list"))["error"]["code"] == -32001
        answer = await client.call("flaky")
        assert text_of(answer) == "at last"
        assert answer["result"]["_meta"] == {"tries": 3}


@pytest.mark.parametrize("wrong", ["text", None, 5])
@pytest.mark.parametrize("version", ERAS)
async def test_an_answer_that_is_none_costs_the_call(wrong: Any, version: str) -> None:
    app = Server("layers")
    app.add_tool(lambda: 1, name="one")

    @app.middleware
    async def answers(ctx: Context, call_next: Any) -> Any:
        return wrong

    async with wire(app, version) as client:
        answer = await client.call("one")
        assert answer["result"]["isError"]
        assert "not a `Result`" in text_of(answer)


async def test_a_broken_middleware_costs_the_call() -> None:
    app = Server("layers")
    app.add_tool(lambda: 1, name="one")

    @app.middleware
    def plain(ctx: Context, call_next: Any) -> Any:
        raise ValueError("broken")

    async with wire(app) as client:
        assert "broken" in text_of(await client.call("one"))
        assert (await client.ask("tools/list"))["error"]["code"] == -32603


async def test_it_sees_cancellation() -> None:
    trace: list[str] = []
    app = traced(["a"], trace)
    begun = asyncio.Event()

    @app.tool
    async def wait() -> str:
        begun.set()
        await asyncio.sleep(3600)
        return "never"

    async with wire(app) as client:
        id = client.request("tools/call", {"name": "wait", "arguments": {}})
        await asyncio.wait_for(begun.wait(), 30)
        client.cancel(id)
        await client.silence()
    assert trace == ["a in", "a CancelledError", "a out", *trace[3:]]
