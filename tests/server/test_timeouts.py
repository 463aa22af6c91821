"""Tools that take too long."""

import asyncio
import threading

import pytest

from mcpearl import Context, Server
from mcpearl.testing.clock import MovableClock
from tests.server.wire import ERAS, text_of, wire


@pytest.mark.parametrize("version", ERAS)
async def test_an_async_tool_is_stopped(version: str) -> None:
    app = Server("slow")
    stopped = asyncio.Event()

    @app.tool(timeout=0.05)
    async def slow() -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return "never"

    async with wire(app, version) as client:
        answer = await client.call("slow")
        assert answer["result"]["isError"]
        assert text_of(answer) == "Tool `slow` did not finish within 0.05 s"
        assert stopped.is_set()


@pytest.mark.parametrize("version", ERAS)
async def test_a_plain_tool_is_answered_for_and_can_see_it(version: str) -> None:
    app = Server("slow")
    saw = threading.Event()

    @app.tool(timeout=0.05)
    def slow(ctx: Context) -> str:
        while not ctx.cancelled:
            pass
        saw.set()
        return "too late"

    async with wire(app, version) as client:
        assert "did not finish" in text_of(await client.call("slow"))
        assert await asyncio.to_thread(saw.wait, 30)
        assert await client.silence() == []


async def test_a_timeout_for_all_tools_and_one_of_their_own(clock: MovableClock) -> None:
    app = Server("slow", tool_timeout=10)

    @app.tool
    async def slow() -> str:
        await asyncio.sleep(3600)
        return "done"

    @app.tool(timeout=60)
    async def patient() -> str:
        await asyncio.sleep(59)
        return "done"

    async with wire(app) as client:
        slow_call, patient_call = (
            client.request("tools/call", {"name": n}) for n in ("slow", "patient")
        )
        await clock.advance(11)
        assert "did not finish within 10 s" in text_of(await client.answer_to(slow_call))
        await clock.advance(50)
        assert text_of(await client.answer_to(patient_call)) == "done"


async def test_a_timeout_of_the_tools_own_is_its_own() -> None:
    app = Server("slow")

    @app.tool(timeout=60)
    async def impatient() -> str:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)
        return "never"

    async with wire(app) as client:
        assert text_of(await client.call("impatient")) == "Tool `impatient` failed: TimeoutError"


async def test_asking_within_a_timeout() -> None:
    app = Server("slow")

    @app.tool(timeout=60)
    async def asks(ctx: Context) -> str:
        return (await ctx.elicit("?")).action

    async with wire(app) as client:
        answer = await client.call("asks")
        assert answer["result"]["resultType"] == "input_required"
