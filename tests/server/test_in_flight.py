"""How much one client may have in hand: reading pauses, nothing is lost, nothing deadlocks."""

import asyncio
from typing import Any

import pytest

from mcpearl import Context, Limits, Server
from mcpearl.server.connection import ServerConnection
from mcpearl.testing.clock import MovableClock
from tests.server.wire import ERAS, LEGACY, Wire, text_of, wire
from tests.waiting import eventually

SMALL = Limits(max_in_flight=4, max_in_flight_hard=12)


class Gate:
    """A tool whose calls wait until they are let through."""

    def __init__(self, **options: Any) -> None:
        self.app = Server("full", **{"limits": SMALL, **options})
        self.open = asyncio.Event()
        self.running = self.most = 0

        @self.app.tool
        async def wait() -> str:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.open.wait()
            finally:
                self.running -= 1
            return "through"

        @self.app.tool
        async def forever() -> None:
            await asyncio.sleep(3600)

        @self.app.tool
        async def ask(ctx: Context) -> str:
            return (await ctx.elicit("?")).action

    @property
    def connection(self) -> ServerConnection:
        (connection,) = self.app.core.roster
        return connection


def start(client: Wire, count: int, tool: str = "wait") -> list[Any]:
    return [client.request("tools/call", {"name": tool, "arguments": {}}) for _ in range(count)]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", ERAS)
async def test_past_the_soft_limit_calls_wait_and_none_is_lost(version: str) -> None:
    gate = Gate()
    async with wire(gate.app, version) as client:
        ids = start(client, 100)
        await settle()
        assert gate.running == 4
        gate.open.set()
        for id in ids:
            assert text_of(await client.answer_to(id)) == "through"
        assert gate.most == 4


async def test_many_messages_in_one_read_are_no_exception() -> None:
    """The hard limit is not for calls that could have waited."""
    gate = Gate()
    async with wire(gate.app) as client:
        client.transport._peer.pause()  # type: ignore[union-attr]
        ids = start(client, 100)
        client.transport._peer.resume()  # type: ignore[union-attr]
        await settle()
        assert gate.running == 4
        gate.open.set()
        for id in ids:
            assert "result" in await client.answer_to(id)


async def test_the_order_of_messages_is_kept() -> None:
    """A cancellation does not overtake the call it is for."""
    gate = Gate()
    async with wire(gate.app) as client:
        ids = start(client, 4)
        for id in start(client, 3, "forever"):
            client.cancel(id)
        await settle()
        gate.open.set()
        for id in ids:
            assert "result" in await client.answer_to(id)
        assert await client.silence() == []
        assert not gate.connection.end.in_flight


async def test_asking_the_client_while_full_is_no_deadlock() -> None:
    gate = Gate()
    async with wire(gate.app, LEGACY) as client:
        asks = start(client, 4, "ask")
        questions = [await client.next() for _ in range(4)]
        waits = start(client, 4)  # these stand before the answers
        for question in questions:
            client.raw({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        for id in asks:
            assert text_of(await client.answer_to(id)) == "accept"
        gate.open.set()
        for id in waits:
            assert "result" in await client.answer_to(id)


async def test_asking_after_it_became_full_reads_on() -> None:
    """Held messages may be the answers a handler waits for, asked only after they were held."""
    gate = Gate()
    go = asyncio.Event()

    @gate.app.tool
    async def late(ctx: Context) -> str:
        await go.wait()
        return (await ctx.elicit("?")).action

    async with wire(gate.app, LEGACY) as client:
        ids = start(client, 4, "late")
        more = start(client, 2)
        await settle()
        assert gate.running == 0
        go.set()
        for _ in ids:
            question = await client.next()
            client.raw({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        for id in ids:
            assert text_of(await client.answer_to(id)) == "accept"
        gate.open.set()
        for id in more:
            assert "result" in await client.answer_to(id)


async def test_past_the_hard_limit_calls_are_refused() -> None:
    gate = Gate()
    async with wire(gate.app, LEGACY) as client:
        asks = start(client, 4, "ask")
        questions = [await client.next() for _ in asks]
        more = start(client, 20)
        refused = [await client.answer_to(id) for id in more[8:]]
        for answer in refused:
            assert answer["error"]["code"] == -32603
            assert "limit is 12" in answer["error"]["message"]
        gate.open.set()
        for question in questions:
            client.raw({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        for id in asks + more[:8]:
            assert "result" in await client.answer_to(id)


@pytest.mark.parametrize("version", ERAS)
async def test_calls_that_never_end_can_be_cancelled(version: str, clock: MovableClock) -> None:
    gate = Gate()
    async with wire(gate.app, version) as client:
        ids = start(client, 4)
        for id in ids:
            client.cancel(id)
        await settle()
        assert gate.running == 4, "nothing is read while there is no room"
        await clock.advance(6)  # after a while it reads on all the same
        assert await client.silence() == []
        assert gate.running == 0
        await clock.advance(6)
        again = start(client, 20)
        await settle()
        assert gate.running == 4, "the limit is the old one again"
        gate.open.set()
        for id in again:
            assert "result" in await client.answer_to(id)


async def test_a_client_that_neither_reads_nor_has_room_is_read_again_when_both_are_over() -> None:
    """Two reasons to pause: the end of one is not the end of the other."""
    gate = Gate()
    async with wire(gate.app) as client:
        ids = start(client, 4)
        await settle()
        connection = gate.connection
        connection.writable(False)
        connection.writable(True)
        more = start(client, 4)
        await settle()
        assert gate.running == 4, "still full"
        connection.writable(False)
        gate.open.set()
        await settle()
        last = client.request("tools/list")
        await settle()
        assert not connection.attentive, "still not flowing"
        connection.writable(True)
        for id in [*ids, *more, last]:
            assert "result" in await client.answer_to(id)


async def test_progress_waits_for_a_client_that_does_not_read(clock: MovableClock) -> None:
    app = Server("flood")
    told = 0

    @app.tool
    async def flood(ctx: Context) -> str:
        nonlocal told
        while True:
            told += 1
            await ctx.progress(told, message="x" * 1000)

    async with wire(app) as client:
        id = client.request("tools/call", {"name": "flood", "arguments": {}}, token=1)
        await client.next()
        client.transport.pause()
        await eventually(lambda: client.transport._unread_bytes > 1_000_000)
        await clock.advance(10)
        before = told
        await clock.advance(10)
        assert told == before, "the handler waits"
        client.transport.resume()
        await eventually(lambda: told > before)
        client.cancel(id)
        await client.silence()


async def test_on_the_way_out_nothing_new_is_begun() -> None:
    gate = Gate()
    async with wire(gate.app) as client:
        ids = start(client, 2)
        await settle()
        draining = asyncio.create_task(gate.connection.drain(5.0))
        await settle()
        refused = await client.call("wait")
        assert refused["error"]["message"] == "The server is shutting down"
        listening = await client.ask("subscriptions/listen", {"notifications": {}})
        assert listening["error"]["message"] == "The server is shutting down"
        gate.open.set()
        for id in ids:
            assert "result" in await client.answer_to(id)
        await draining
        assert client.lost_reason is None


async def test_draining_twice_is_draining_once() -> None:
    gate = Gate()
    async with wire(gate.app) as client:
        (id,) = start(client, 1)
        await settle()
        connection = gate.connection
        drains = [asyncio.create_task(connection.drain(300.0)) for _ in range(2)]
        await settle()
        gate.open.set()
        assert "result" in await client.answer_to(id)
        await asyncio.wait_for(asyncio.gather(*drains), 30)


async def test_a_lost_client_with_held_messages_starts_nothing_more() -> None:
    gate = Gate()
    async with wire(gate.app) as client:
        start(client, 50)
        await settle()
    await settle()
    assert gate.most == 4
    assert gate.running == 0
