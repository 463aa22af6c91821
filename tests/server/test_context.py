"""What a handler can learn and say through its context."""

import math
from typing import Any

import pytest

from mcpearl import Context, Server
from tests.server.wire import ERAS, LEGACY, MODERN, wire


@pytest.mark.parametrize("version", ERAS)
async def test_who_is_asking_and_for_what(version: str) -> None:
    app = Server("context")
    seen: dict[str, Any] = {}

    @app.tool
    async def look(a: int, ctx: Context) -> str:
        seen.update(
            id=ctx.request_id,
            method=ctx.method,
            name=ctx.params.name,
            version=ctx.client.version.name,
            client=ctx.client.client.name if ctx.client.client else None,
            sampling=ctx.client.capabilities.sampling is not None,
            principal=ctx.principal,
            meta=ctx.meta.get("example.com/trace"),
            lifespan=ctx.lifespan,
            cancelled=ctx.cancelled,
        )
        return "x"

    async with wire(app, version) as client:
        await client.call("look", {"a": 1}, id="it", **{"example.com/trace": "t"})
    assert seen == {
        "id": "it",
        "method": "tools/call",
        "name": "look",
        "version": version,
        "client": "wire",
        "sampling": True,
        "principal": None,
        "meta": "t",
        "lifespan": None,
        "cancelled": False,
    }


async def test_the_context_is_injected_wherever_it_stands_and_never_in_the_schema() -> None:
    app = Server("context")

    def first(ctx: Context, a: int) -> str:
        return f"{ctx.method} {a}"

    def keyword(a: int, *, ctx: Context | None = None) -> str:
        return f"{ctx.method if ctx else None} {a}"

    def renamed(a: int, whoever: Context) -> str:
        return f"{whoever.method} {a}"

    for function in (first, keyword, renamed):
        app.add_tool(function)
    async with wire(app) as client:
        for tool in (await client.ask("tools/list"))["result"]["tools"]:
            assert list(tool["inputSchema"]["properties"]) == ["a"]
            answer = await client.call(tool["name"], {"a": 1})
            assert answer["result"]["structuredContent"] == {"result": "tools/call 1"}


# Progress


def counting() -> Server:
    app = Server("context")

    @app.tool
    async def count(values: list[float | None], ctx: Context) -> str:
        for value in values:
            await ctx.progress(math.nan if value is None else value, 10, "going")
        return "done"

    @app.tool
    def count_plainly(values: list[float], ctx: Context) -> str:
        for value in values:
            ctx.progress(value)
        return "done"

    @app.tool
    async def endless(ctx: Context) -> str:
        await ctx.progress(1, math.inf)
        await ctx.progress(math.inf)
        await ctx.progress(2, math.nan)
        return "done"

    return app


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("tool", ["count", "count_plainly"])
async def test_progress_needs_a_token_and_only_grows(tool: str, version: str) -> None:
    async with wire(counting(), version) as client:
        await client.call(tool, {"values": [1, 2, 3]})
        assert await client.silence() == []
        await client.call(tool, {"values": [1, 3, 2, 3, 3.5, -1, 9]}, token="tok")
        told = await client.silence()
    assert [message["params"]["progress"] for message in told] == [1, 3, 3.5, 9]
    assert all(message["method"] == "notifications/progress" for message in told)
    assert all(message["params"]["progressToken"] == "tok" for message in told)


async def test_progress_that_is_no_number_is_not_told() -> None:
    async with wire(counting()) as client:
        await client.call("count", {"values": [None, 1, None, 2]}, token=7)
        told = await client.silence()
        assert [message["params"]["progress"] for message in told] == [1, 2]
        await client.call("endless", token=7)
        told = await client.silence()
    assert [message["params"] for message in told] == [
        {"progressToken": 7, "progress": 1},
        {"progressToken": 7, "progress": 2},
    ]


@pytest.mark.parametrize("token", [True, None, 1.5, {}, []])
async def test_tokens_that_are_none(token: Any) -> None:
    async with wire(counting(), LEGACY) as client:
        params = {
            "name": "count",
            "arguments": {"values": [1]},
            "_meta": {"progressToken": token},
        }
        client.raw({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await client.answer_to(1)
        assert await client.silence() == []


async def test_old_versions_have_no_message_with_progress() -> None:
    for version, has in (("2024-11-05", False), ("2025-03-26", True), (MODERN, True)):
        async with wire(counting(), version) as client:
            await client.call("count", {"values": [1]}, token=1)
            (told,) = await client.silence()
        assert ("message" in told["params"]) is has


async def test_nothing_is_said_after_the_answer() -> None:
    app = Server("context")
    kept: list[Context] = []

    @app.tool
    async def leaves(ctx: Context) -> str:
        kept.append(ctx)
        return "done"

    async with wire(app, LEGACY) as client:
        await client.call("leaves", token=1)
        (ctx,) = kept
        assert ctx.cancelled
        await ctx.progress(1)
        await ctx.info("late")
        assert await client.silence() == []


async def test_state_is_shared_within_one_call_only() -> None:
    app = Server("context")
    seen: list[Any] = []

    @app.middleware
    async def mark(ctx: Context, call_next: Any) -> Any:
        ctx.state["number"] = len(seen)
        return await call_next()

    @app.tool
    async def look(ctx: Context) -> str:
        seen.append(dict(ctx.state))
        ctx.state["more"] = 1
        return "x"

    async with wire(app) as client:
        await client.call("look")
        await client.call("look")
    assert seen == [{"number": 0}, {"number": 1}]
