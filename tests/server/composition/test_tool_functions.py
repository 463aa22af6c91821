"""Calls of mounted tools go straight to the function, unless their server has something in front."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from mcpearl import Client, Context, McpError, RateLimit, Server
from mcpearl.runtime.observer import Observer
from mcpearl.server.composition.rewrite import Rewrite
from mcpearl.server.extensions import ServerExtension
from tests.server.wire import ERAS
from tests.waiting import eventually


def part(**options: Any) -> Server:
    app = Server("part", **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool(scopes=["write"])
    async def write() -> str:
        return "written"

    return app


def goes_straight(inner: Server, tool: str = "add", rewrite: Rewrite | None = None) -> bool:
    """Whether calls of a tool of a mounted server go straight to its function."""
    app = Server("outer")
    app.mount("part", inner, rewrite=rewrite)
    assert app._composition is not None
    found = app._composition.index.tool(f"part__{tool}")
    assert found is not None
    return found.answer is not None


class AroundTools(ServerExtension):
    identifier = "com.example/around"

    async def call_tool(self, ctx: Context, call_next: Any) -> Any:
        return await call_next()


async def passing(ctx: Context, call_next: Any) -> Any:
    return await call_next()


def test_only_what_nothing_is_in_front_of_goes_straight_to_the_function() -> None:
    assert goes_straight(part())
    assert not goes_straight(part(), "write")
    assert not goes_straight(part(middleware=[passing]))
    assert not goes_straight(part(rate=RateLimit(5, per=60)))
    assert not goes_straight(part(extensions=[AroundTools()]))
    middle = Server("middle")
    middle.mount("deep", part())
    assert not goes_straight(middle, "deep__add")


@pytest.mark.parametrize("version", ERAS)
async def test_middleware_that_a_mounted_server_gets_later_runs_around_the_next_call(
    version: str,
) -> None:
    inner, app, seen = part(), Server("outer"), []
    app.mount("part", inner)
    async with Client(app, protocol=version) as client:
        assert (await client.call_tool("part__add", {"a": 1, "b": 2})).data == 3

        @inner.middleware
        async def note(ctx: Context, call_next: Any) -> Any:
            seen.append((ctx.method, ctx.params.name))
            return await call_next()

        assert (await client.call_tool("part__add", {"a": 2, "b": 2})).data == 4
    assert seen == [("tools/call", "add")]


@pytest.mark.parametrize("middleware", [[], [passing]])
async def test_calls_are_observed_by_the_outer_server_alone(middleware: list[Any]) -> None:
    told: list[tuple[str, str]] = []

    class Noting(Observer):
        def __init__(self, name: str) -> None:
            self.name = name

        def call_began(self, call: Any) -> Any:
            told.append((self.name, f"{call.method} began"))
            return call

        def call_entered(self, began: Any) -> None:
            told.append((self.name, f"{began.method} entered"))
            current.set(began)

    current: ContextVar[Any] = ContextVar("current", default=None)
    inner = part(middleware=middleware, observer=[Noting("inner"), Noting("also inner")])
    app = Server("outer", observer=Noting("outer"))
    app.mount("part", inner)

    @inner.tool
    async def called() -> str:
        return str(current.get().params.name)

    async with Client(app) as client:
        assert (await client.call_tool("part__called")).text == "part__called"
    assert {name for name, _ in told} == {"outer"}
    calls = [what for _, what in told if what.startswith("tools/call")]
    assert calls == ["tools/call began", "tools/call entered"]


async def test_a_mounted_tool_that_is_replaced_or_removed_is_not_called_any_more() -> None:
    inner, app = part(), Server("outer")
    app.mount("part", inner)
    async with Client(app) as client:
        assert (await client.call_tool("part__add", {"a": 1, "b": 2})).data == 3
        inner.remove_tool("add")
        with pytest.raises(McpError, match="Unknown tool: part__add"):
            await client.call_tool("part__add", {"a": 1, "b": 2})

        @inner.tool(name="add")
        async def more(a: int, b: int) -> int:
            return a + b + 100

        assert (await client.call_tool("part__add", {"a": 1, "b": 2})).data == 103
        app.unmount("part")
        with pytest.raises(McpError, match="Unknown tool: part__add"):
            await client.call_tool("part__add", {"a": 1, "b": 2})


async def test_a_call_that_waits_for_a_part_runs_what_its_lifespan_put_in_front() -> None:
    seen = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        async def note(ctx: Context, call_next: Any) -> Any:
            if ctx.method == "tools/call":
                seen.append(ctx.params.name)
            return await call_next()

        began.set_result(None)
        await go
        server.middleware(note)
        yield

    app = part()
    async with Client(app) as client:
        loop = asyncio.get_running_loop()
        began, go = loop.create_future(), loop.create_future()
        app.mount("part", part(lifespan=lifespan))
        await began
        call = asyncio.create_task(client.call_tool("part__add", {"a": 1, "b": 2}))
        await eventually(lambda: app.core.counters()["calls_in_flight"] == 1)
        go.set_result(None)
        assert (await call).text == "3"
    assert seen == ["add"]


@pytest.mark.parametrize("version", ERAS)
async def test_a_mounted_tool_sees_its_own_name_and_server_and_the_callers_meta(
    version: str,
) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        yield "of the part"

    inner, app = part(lifespan=lifespan), Server("outer")

    @inner.tool
    async def look(ctx: Context) -> list[str]:
        first = ctx.params
        assert ctx.params is first
        assert ctx.core is inner.core
        return [first.name, ctx.lifespan, ctx.meta["com.example/mark"]]

    app.mount("part", inner, rewrite=Rewrite(rename={"look": "see"}))
    async with Client(app, protocol=version) as client:
        result = await client.call_tool("part__see", meta={"com.example/mark": "seen"})
        assert result.data == ["look", "of the part", "seen"]
