"""Cancellation: it reaches the handler, and nothing is said of the call afterwards."""

import asyncio
import threading
from typing import Any

import pytest

from mcpearl import Client, Context, RequestTimeout, Server
from tests.server.wire import ERAS, LEGACY, text_of, wire
from tests.waiting import eventually

CALL = {"name": "wait", "arguments": {}}


@pytest.mark.parametrize("version", ERAS)
async def test_an_async_handler_is_cancelled(version: str) -> None:
    app = Server("cancelling")
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.set()
            raise
        return "never"

    async with wire(app, version) as client:
        id = client.request("tools/call", CALL)
        await asyncio.wait_for(begun.wait(), 30)
        client.cancel(id)
        await asyncio.wait_for(ended.wait(), 30)
        assert await client.silence() == []
        assert not app.core.roster.unwinding


@pytest.mark.parametrize("version", ERAS)
async def test_a_plain_handler_can_look(version: str) -> None:
    app = Server("cancelling")
    started, ended = threading.Event(), threading.Event()

    @app.tool
    def wait(ctx: Context) -> str:
        started.set()
        number = 0
        while not ctx.cancelled:
            number += 1
            ctx.progress(number)
        ctx.progress(number + 1)
        ctx.error("said to nobody")
        ended.set()
        return "never sent"

    async with wire(app, version) as client:
        id = client.request("tools/call", CALL, token=1)
        assert await asyncio.to_thread(started.wait, 30)
        await client.next()
        client.cancel(id)
        assert await asyncio.to_thread(ended.wait, 30)
        await client.silence()
        assert await client.silence() == []


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("then", ["returns", "raises", "goes on"])
async def test_a_handler_that_will_not_be_cancelled_is_not_heard(version: str, then: str) -> None:
    app = Server("cancelling")
    begun, ended, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait(ctx: Context) -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.set()
            if then == "raises":
                raise ValueError("instead") from None
            if then == "goes on":
                await ctx.progress(5)
                await ctx.info("still here")
                await asyncio.sleep(0)
        finally:
            asyncio.get_running_loop().call_soon(over.set)
        return "not wanted any more"

    async with wire(app, version) as client:
        id = client.request("tools/call", CALL, token=1)
        await asyncio.wait_for(begun.wait(), 30)
        client.cancel(id)
        await asyncio.wait_for(ended.wait(), 30)
        await asyncio.wait_for(over.wait(), 30)  # with what it might say
        assert await client.silence() == []


@pytest.mark.parametrize("version", ERAS)
async def test_an_id_used_again_belongs_to_the_new_call(version: str) -> None:
    app = Server("cancelling")
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait(ctx: Context, answer: str = "") -> str:
        if answer:
            return answer
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await go_on.wait()
        ended.set()
        return "of the first call"

    async with wire(app, version) as client:
        client.request("tools/call", CALL, id="same")
        await asyncio.wait_for(begun.wait(), 30)
        client.cancel("same")
        second = {"name": "wait", "arguments": {"answer": "of the second call"}}
        assert text_of(await client.ask("tools/call", second, id="same")) == "of the second call"
        go_on.set()
        await asyncio.wait_for(ended.wait(), 30)
        assert await client.silence() == []


@pytest.mark.parametrize("version", ERAS)
async def test_cancelling_what_is_over_or_never_was_is_nothing(version: str) -> None:
    app = Server("cancelling")
    app.add_tool(lambda: 1, name="one")
    async with wire(app, version) as client:
        id = client.request("tools/call", {"name": "one", "arguments": {}})
        await client.answer_to(id)
        client.cancel(id)
        client.cancel("never")
        client.notify("notifications/cancelled", {})
        assert await client.silence() == []


@pytest.mark.parametrize("version", ERAS)
async def test_a_call_can_be_cancelled_before_it_began(version: str) -> None:
    """More calls than threads: one that still waits for a thread never runs."""
    app = Server("cancelling", threads=1)
    let_go, ran = threading.Event(), []

    @app.tool
    def wait() -> str:
        let_go.wait(60)
        return "done"

    @app.tool
    def mark() -> str:
        ran.append(1)
        return "ran"

    async with wire(app, version) as client:
        first = client.request("tools/call", CALL)
        second = client.request("tools/call", {"name": "mark", "arguments": {}})
        await eventually(lambda: app._pool._jobs.qsize() + app._pool._parked_count == 1)
        client.cancel(second)
        await client.silence()
        let_go.set()
        assert text_of(await client.answer_to(first)) == "done"
        assert ran == []
        assert text_of(await client.call("mark")) == "ran"


@pytest.mark.parametrize("version", ERAS)
async def test_a_client_that_goes_takes_its_calls_along(version: str) -> None:
    app = Server("cancelling")
    begun: list[str] = []
    ended: list[str] = []

    @app.tool
    async def wait() -> str:
        begun.append("begun")
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("ended")
        return "never"

    async with wire(app, version) as client:
        for _ in range(3):
            client.request("tools/call", CALL)
        await eventually(lambda: len(begun) == 3)
    assert ended == ["ended"] * 3
    assert not app.core.roster


@pytest.mark.parametrize("version", ERAS)
async def test_a_client_that_gives_up_tells(version: str) -> None:
    app = Server("cancelling")
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return "never"

    async with Client(app, protocol=version) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait", timeout=0.05)
        await asyncio.wait_for(ended.wait(), 30)
        begun.clear()
        ended.clear()
        task: asyncio.Task[Any] = asyncio.create_task(client.call_tool("wait"))
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        await asyncio.wait_for(ended.wait(), 30)


async def test_a_handler_that_cancels_itself_is_a_failure() -> None:
    app = Server("cancelling")

    @app.tool
    async def wait() -> str:
        raise asyncio.CancelledError

    @app.tool
    async def inner() -> str:
        task = asyncio.create_task(asyncio.sleep(3600))
        await asyncio.sleep(0)
        task.cancel()
        await task
        return "never"

    async with wire(app, LEGACY) as client:
        for name in ("wait", "inner"):
            answer = await client.call(name)
            assert answer["result"]["isError"]
            assert "CancelledError" in text_of(answer)


async def test_a_cancelled_call_completes_its_batch() -> None:
    app = Server("cancelling")
    app.add_tool(lambda: 1, name="one")

    @app.tool
    async def wait() -> str:
        await asyncio.sleep(3600)
        return "never"

    async with wire(app, "2025-03-26") as client:
        client.raw(
            [
                {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": CALL},
                {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": {"name": "one"}},
            ]
        )
        await client.silence()
        client.cancel("a")
        answers: Any = await client.next()
        assert [answer["id"] for answer in answers] == ["b"]
