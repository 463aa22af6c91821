"""Networks that are cut, refuse, stall and drop: the client comes back by itself, and nothing is left."""

import asyncio
import time
from typing import Any

import pytest

from mcpearl import (
    Client,
    ConnectionLost,
    Keepalive,
    McpearlError,
    Phase,
    Reconnect,
    RequestTimeout,
)
from tests.waiting import eventually, turns

from .world import LEGACY, MODERN, Outcomes, World

BOTH = pytest.mark.parametrize("protocol", [LEGACY, MODERN])


@BOTH
async def test_cut_and_healed(world: World, protocol: str) -> None:
    heard: list[str] = []
    states: list[Phase] = []
    outcomes = Outcomes()
    async with world.client(
        protocol=protocol,
        on_notification=lambda notice: heard.append(notice.params.uri),
        on_state=states.append,
    ) as client:
        await client.subscribe("thing://1")
        await world.proxy.refuse()
        world.proxy.cut()
        keys = [f"{world.mark}{n}" for n in range(3)]
        work = [outcomes.of(key, client.call_tool("charge", {"key": key})) for key in keys]
        calling = asyncio.gather(*work)
        await eventually(lambda: client.state is not Phase.READY)
        later = asyncio.ensure_future(client.call_tool("charge", {"key": f"{world.mark}later"}))
        await turns()
        assert not later.done()  # it waits for the connection
        await world.proxy.accept()
        await calling
        assert (await later).content[0].text == f"{world.mark}later"  # type: ignore[union-attr]
        await told_again(client, heard, "thing://1")
        assert client.state is Phase.READY
    assert len(outcomes) == 3
    outcomes.check(world.server.ran(), once=True)
    assert Phase.FAILED in states
    assert states[-1] is Phase.CLOSED


async def told_again(client: Client, heard: list[Any], uri: str) -> None:
    """Wait until the server tells of a change again: the subscription is back."""
    deadline = time.monotonic() + 30
    while uri not in heard and time.monotonic() < deadline:
        await client.call_tool("touch", {"uri": uri})
        await asyncio.sleep(0.02)
    assert uri in heard


@BOTH
async def test_a_hundred_cuts_in_a_row(world: World, protocol: str) -> None:
    outcomes = Outcomes()
    at_once = Reconnect(delays=(0.001,))
    async with world.client(protocol=protocol, reconnect=at_once) as client:
        await client.list_tools()
        for number in range(100):
            key = f"{world.mark}-{number}"
            calling = asyncio.ensure_future(outcomes.of(key, client.call_tool("put", {"key": key})))
            await asyncio.sleep(0)
            (world.proxy.cut if number % 2 else world.proxy.reset)()
            await calling
        await client.ping()
    assert len(outcomes.done) == 100  # it may be repeated, so each of them succeeds
    outcomes.check(world.server.ran(), once=False)


async def test_cut_in_the_middle_of_a_message(world: World) -> None:
    async with world.client(protocol=MODERN) as client:
        await client.list_tools()
        allowances = iter([700, 900, None, None, None, None, None])
        world.proxy.allowance = lambda: next(allowances, None)
        world.proxy.cut()
        # The answer of a read is far longer than what the first two connections carry.
        result = await client.call_tool("put", {"key": world.mark + "x" * 2000})
        assert not result.is_error
        assert world.proxy.cuts == 2


async def test_refused_for_a_while_and_within_the_time_of_a_call(world: World) -> None:
    async with world.client(protocol=LEGACY) as client:
        await world.proxy.refuse()
        world.proxy.reset()
        if world.wire != "http":  # which notices when it is used
            await eventually(lambda: client.state is not Phase.READY)
        with pytest.raises(ConnectionLost) as caught:
            await client.call_tool("charge", {"key": f"{world.mark}never"}, timeout=0.3)
        assert not caught.value.maybe_executed
        assert client.state is not Phase.READY
        await world.proxy.accept()
        assert (await client.read_resource("thing://7")).contents
    assert not world.server.ran()[f"{world.mark}never"]


async def test_the_first_connection_is_not_waited_for(world: World) -> None:
    await world.proxy.refuse()
    with pytest.raises(ConnectionLost):
        await world.client().connect()


@pytest.mark.parametrize("wire", ["tcp", "tls", "unix", "stdio", "ws"])
async def test_half_open_is_noticed_by_a_ping(world: World) -> None:
    keepalive = Keepalive(interval=0.15, patience=1.0)
    async with world.client(protocol=LEGACY, keepalive=keepalive, connect_timeout=3.0) as client:
        await client.list_tools()
        world.proxy.deaf = True
        await eventually(lambda: client.state is not Phase.READY)
        reading = asyncio.ensure_future(client.read_resource("thing://7"))
        await turns()
        world.proxy.deaf = False
        assert (await reading).contents
        assert world.proxy.taken > 1


@pytest.mark.parametrize("protocol", [LEGACY, MODERN])
@pytest.mark.parametrize("wire", ["http"])
async def test_half_open_http_costs_the_calls_in_hand(world: World, protocol: str) -> None:
    async with world.client(protocol=protocol) as client:
        await client.list_tools()
        world.proxy.deaf = True
        with pytest.raises(RequestTimeout):
            await client.call_tool("put", {"key": f"{world.mark}lost"}, timeout=0.3)
        world.proxy.deaf = False
        for _ in range(5):  # connections kept from before are dead too, and one call finds each out
            try:
                assert await client.call_tool("put", {"key": world.mark}, timeout=2.0)
                break
            except McpearlError:
                pass
        else:
            raise AssertionError("it never came back")


@BOTH
async def test_a_slow_network_is_only_slow(world: World, protocol: str) -> None:
    states: list[Phase] = []
    async with world.client(protocol=protocol, on_state=states.append) as client:
        await client.list_tools()
        states.clear()
        world.proxy.delay = 0.05
        assert not (await client.call_tool("charge", {"key": f"{world.mark}a"})).is_error
        world.proxy.delay = 0.0
        world.proxy.rate = 4000
        assert not (await client.call_tool("charge", {"key": f"{world.mark}b"})).is_error
        world.proxy.rate = None
        assert not states
    ran = world.server.ran()
    assert (ran[f"{world.mark}a"], ran[f"{world.mark}b"]) == (1, 1)


@pytest.mark.parametrize("protocol", [LEGACY, MODERN])
async def test_garbage_from_the_network(world: World, protocol: str) -> None:
    async with world.client(protocol=protocol) as client:
        await client.list_tools()
        for garbage in (b"\x00\xff\xfe\n", b"{\n", b"HTTP/1.1 999\r\n\r\n", b"[]\n" * 50):
            world.proxy.say(garbage)
            await asyncio.sleep(0.02)
            result = await client.call_tool("put", {"key": f"{world.mark}"})
            assert not result.is_error
        assert client.state is Phase.READY
