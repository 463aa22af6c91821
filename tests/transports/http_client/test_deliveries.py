"""Messages without an answer, to servers that cause too many of them or do not take them."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from mcpearl import Client
from mcpearl.protocol.errors import LimitReached, RequestTimeout
from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_client.transport import HttpTransport
from tests.transports.http_peer import (
    HttpPeer,
    Request,
    http_peer,
    in_session,
    legacy,
    notification,
    wired,
)
from tests.waiting import eventually

AT_ONCE = 16
OTHERS = 8  # connections and tasks beside those of answers: the call, its cancellation, streams


@pytest.fixture
async def peer() -> AsyncIterator[HttpPeer]:
    async with http_peer() as peer:
        legacy(peer)
        yield peer


class Flood:
    """A tool whose answer begins with many pings; the answers are taken when `taking` is set."""

    def __init__(self, peer: HttpPeer, pings: int) -> None:
        self.answered: list[int] = []
        self.held = self.peak = 0
        self.taking = asyncio.Event()
        self._pings = pings
        peer.on("tools/call")(self._call)
        peer.on("POST")(self._take)

    async def _call(self, request: Request) -> None:
        await request.stream()
        pings = ({"jsonrpc": "2.0", "id": id, "method": "ping"} for id in range(self._pings))
        await request.chunk("".join(f"data: {json.dumps(ping)}\n\n" for ping in pings))
        await request.event_result({"content": []})
        await request.end()

    async def _take(self, request: Request) -> None:
        if "result" in request.message:
            self.held += 1
            self.peak = max(self.peak, self.held)
            await self.taking.wait()
            self.held -= 1
            self.answered.append(request.message["id"])
        await request.respond(202)


async def test_a_flood_of_pings_whose_answers_are_not_taken(peer: HttpPeer) -> None:
    Flood(peer, 20_000)
    transport = HttpTransport(peer.url, Limits())
    async with Client(transport, validate_output=False) as client, asyncio.timeout(30):
        with pytest.raises(RequestTimeout):
            await client.call_tool("flood", timeout=1)
        assert len(transport._tasks) <= AT_ONCE + OTHERS
        assert peer.connections <= AT_ONCE + OTHERS
        assert len(transport._deliveries._answers) <= Limits().max_in_flight + 64


async def test_every_answer_of_a_flood_is_delivered_a_few_at_once(peer: HttpPeer) -> None:
    flood = Flood(peer, 1000)
    transport = HttpTransport(peer.url, Limits(max_in_flight=100))
    async with Client(transport, validate_output=False) as client, asyncio.timeout(30):
        call = asyncio.ensure_future(client.call_tool("flood"))
        await eventually(lambda: flood.held >= AT_ONCE)
        assert not call.done()  # its answer comes after the pings
        flood.taking.set()
        await call
        await eventually(lambda: len(flood.answered) >= 1000)
    assert sorted(flood.answered) == list(range(1000))
    assert flood.peak == AT_ONCE
    assert peer.connections <= AT_ONCE + OTHERS


async def test_notifications_that_are_not_taken_cost_one_exchange(peer: HttpPeer) -> None:
    taking = asyncio.Event()

    @peer.on("notifications/progress")
    async def hold(request: Request) -> None:
        await taking.wait()
        await request.respond(202)

    async with wired(peer) as (wire, heard), asyncio.timeout(30):
        await in_session(wire, heard)
        before = len(wire._tasks)
        for number in range(500):
            wire.send(notification("notifications/progress", progress=number))
        await peer.until_asked("notifications/progress")
        assert len(wire._tasks) <= before + 2
        taking.set()
        seen = await peer.until_asked("notifications/progress", 500)
    assert [each.message["params"]["progress"] for each in seen] == list(range(500))


async def test_a_server_that_takes_nothing_is_dropped(peer: HttpPeer) -> None:
    @peer.on("notifications/progress")
    async def hold(request: Request) -> None:
        await request.gone.wait()

    async with wired(peer, limits=Limits(max_outgoing=10_000)) as (wire, heard):
        await in_session(wire, heard)
        for _ in range(30):
            wire.send(notification("notifications/progress", text="x" * 1000))
        await heard.until(lambda: heard.losses)
        (reason,) = heard.losses
        assert isinstance(reason, LimitReached)
        assert "does not take what it is sent" in str(reason)
