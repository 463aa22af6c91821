"""Faults between a client and a server: what the client makes of each, on several wires."""

import asyncio

import pytest

from mcpearl import Client, ConnectionLost, Phase, Reconnect, RequestTimeout, Server
from mcpearl.testing import MovableClock, connected, eventually, faulty
from mcpearl.testing.faults import (
    crash,
    cut,
    drop,
    duplicate,
    freeze,
    garble,
    reorder,
    slow,
)

app = Server("faulty")


@app.tool
def double(number: int) -> int:
    return 2 * number


WIRES = pytest.mark.parametrize("wire", ["memory", "http", "tcp"])
AT_ONCE = Reconnect(delays=(0.01,))


async def doubled(client: Client, number: int, timeout: float = 30) -> int:
    result = await client.call_tool("double", {"number": number}, timeout=timeout)
    return result.structured_content["result"]


@WIRES
async def test_cut_and_back(wire: str):
    """One message passes, the handshake; the answer to the call does not."""
    broken = cut(after=1)
    async with connected(app, wire, "legacy", faults=broken, validate_output=False) as client:
        with pytest.raises(ConnectionLost, match="cut by a fault") as lost:
            await doubled(client, 1)
        assert lost.value.maybe_executed
        assert broken.happened == 1
        if wire != "memory":  # which is not reconnected to
            assert await doubled(client, 2) == 4


async def test_cut_by_bytes():
    async with connected(app, era="legacy", faults=cut(after=4000, bytes=True)) as client:
        with pytest.raises(ConnectionLost):
            for number in range(100):
                await doubled(client, number)
        assert 5 < number < 60


async def test_a_crashed_server_is_away_for_a_while():
    down = crash(after=2, refused=2, method=None)
    async with connected(
        app, "tcp", "legacy", faults=down, reconnect=AT_ONCE, validate_output=False
    ) as client:
        await doubled(client, 1)
        with pytest.raises(ConnectionLost, match="crashed by a fault"):
            await doubled(client, 1)
        assert await doubled(client, 3) == 6
        assert client.tree().restarts == 1


@WIRES
async def test_frozen_until_it_thaws(wire: str):
    frozen = freeze(after=1)
    async with connected(app, wire, "legacy", faults=frozen, validate_output=False) as client:
        call = asyncio.ensure_future(doubled(client, 4))
        await eventually(lambda: frozen.happened)
        assert not call.done()
        frozen.thaw()
        assert await call == 8


async def test_garbled_and_lost_messages_cost_their_call(clock: MovableClock):
    for fault in (garble(after=1), drop(after=1)):
        async with connected(app, era="legacy", faults=fault, validate_output=False) as client:
            call = asyncio.ensure_future(doubled(client, 1, timeout=5))
            await eventually(lambda fault=fault: fault.happened)
            await clock.advance(6)
            with pytest.raises(RequestTimeout):
                await call
            assert await doubled(client, 2) == 4


async def test_twice_and_in_another_order():
    async with connected(app, faults=[duplicate(times=None), reorder(after=3, times=1)]) as client:
        assert await doubled(client, 1) == 2
        first, second = await asyncio.gather(doubled(client, 2), doubled(client, 3))
        assert (first, second) == (4, 6)


async def test_requests_of_one_method_are_lost(clock: MovableClock):
    lost = drop(way="sent", method="tools/call")
    async with connected(app, faults=lost) as client:
        assert [tool.name async for tool in client.tools()] == ["double"]
        call = asyncio.ensure_future(doubled(client, 1, timeout=5))
        await eventually(lambda: lost.happened)
        await clock.advance(6)
        with pytest.raises(RequestTimeout):
            await call
        assert await doubled(client, 1) == 2


async def test_slow(clock: MovableClock):
    target = faulty(app, slow(10))
    client = Client(target)
    connecting = asyncio.ensure_future(client.connect())
    await asyncio.sleep(0)
    assert client.state is not Phase.READY
    await clock.advance(11)
    await connecting
    call = asyncio.ensure_future(client.ping())
    await clock.advance(9)
    assert not call.done()
    await clock.advance(2)
    await call
    await client.close()
