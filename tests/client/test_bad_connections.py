"""What a caller sees of a connection on which things go wrong, on every kind of wire."""

import asyncio

import pytest

from mcpearl import Client, ConnectionLost, Reconnect, RequestTimeout, Server
from mcpearl.testing import MovableClock, connected
from mcpearl.testing.faults import crash, cut, drop, duplicate, freeze, garble, reorder

QUICK = Reconnect(delays=(0.0, 0.01))


@pytest.fixture
def ran() -> list[int]:
    """What the tool was called with."""
    return []


@pytest.fixture
def mcp_app(ran: list[int]) -> Server:
    app = Server("counting")

    @app.tool
    def count(number: int) -> int:
        ran.append(number)
        return number

    @app.tool(annotations={"idempotentHint": True})
    def look(number: int) -> int:
        return number

    return app


@pytest.mark.mcpearl(wire=["tcp", "ws"], era=["legacy", "modern"], faults=duplicate(times=None))
async def test_messages_that_come_twice_are_taken_once(mcp_client: Client):
    for number in range(5):
        assert (await mcp_client.call_tool("count", {"number": number})).data == number


@pytest.mark.mcpearl(wire="tcp", faults=reorder(after=3, times=3))
async def test_answers_in_another_order_reach_their_calls(mcp_client: Client):
    calls = [mcp_client.call_tool("count", {"number": number}) for number in range(8)]
    assert [result.data for result in await asyncio.gather(*calls)] == list(range(8))


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("fault", [drop, garble])
async def test_an_answer_that_is_lost_or_unreadable_costs_one_call(
    mcp_app: Server, clock: MovableClock, fault: type[drop | garble], era: str
):
    lost = fault(after=1)  # the answer to the call, after the one to the handshake
    async with connected(mcp_app, era=era, faults=lost, validate_output=False) as client:
        call = asyncio.ensure_future(client.call_tool("count", {"number": 1}, timeout=5))
        await clock.advance(6)
        with pytest.raises(RequestTimeout):
            await call
        assert lost.happened == 1
        assert (await client.call_tool("count", {"number": 2})).content[0].text == "2"


@pytest.mark.parametrize("fault", [cut, crash])
@pytest.mark.parametrize("wire", ["tcp", "unix", "ws"])
async def test_a_connection_that_breaks_is_made_again(
    mcp_app: Server, ran: list[int], wire: str, fault: type[cut | crash]
):
    broken = fault(after=1)
    async with connected(
        mcp_app, wire, faults=broken, reconnect=QUICK, validate_output=False
    ) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("count", {"number": 1})
        assert (await client.call_tool("count", {"number": 2})).content[0].text == "2"
    assert ran == [1, 2], "a call that may have run is not made again"
    assert broken.happened == 1


async def test_a_call_that_may_be_repeated_is(mcp_app: Server):
    broken = cut(after=2)
    async with connected(mcp_app, "tcp", faults=broken, reconnect=QUICK) as client:
        await client.list_tools()
        assert (await client.call_tool("look", {"number": 1})).data == 1
    assert broken.happened == 1


async def test_a_frozen_connection_goes_on_where_it_was(mcp_app: Server):
    frozen = freeze(after=1)
    async with connected(mcp_app, "tcp", faults=frozen, validate_output=False) as client:
        call = asyncio.ensure_future(client.call_tool("count", {"number": 1}))
        while not frozen.happened:
            await asyncio.sleep(0)
        assert not call.done()
        frozen.thaw()
        assert (await call).content[0].text == "1"
