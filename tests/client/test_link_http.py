"""Coming back over HTTP: sessions the server forgot, streams that broke, servers that were away."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mcpearl import Client, ConnectionLost, LimitReached, Limits, Phase, Reconnect
from mcpearl.client.handshake import legacy_servers
from tests.waiting import eventually

from ..transports.http_peer import HttpPeer, Request, http_peer, legacy, modern

QUICK = Reconnect(delays=(0.01,))
CALLED = {"content": [{"type": "text", "text": "done"}]}
TOOLS = {
    "tools": [
        {"name": "once", "inputSchema": {"type": "object"}},
        {
            "name": "again",
            "inputSchema": {"type": "object"},
            "annotations": {"idempotentHint": True},
        },
    ]
}


@pytest.fixture
async def peer() -> AsyncIterator[HttpPeer]:
    legacy_servers.clear()
    async with http_peer() as peer:
        yield peer


def sessions(peer: HttpPeer) -> list[str]:
    """Let the peer begin sessions, and answer only in those it still knows."""
    known: list[str] = []
    legacy(peer)

    @peer.on("initialize")
    async def initialize(request: Request) -> None:
        known.append(f"s-{len(peer.asked('initialize'))}")
        version = {"protocolVersion": "2025-11-25"}
        info = {"serverInfo": {"name": "by hand", "version": "1"}, "capabilities": {"tools": {}}}
        await request.result({**version, **info}, Mcp_Session_Id=known[-1])

    @peer.on("tools/list")
    async def tools(request: Request) -> None:
        await request.result(TOOLS)

    @peer.on("tools/call")
    async def call(request: Request) -> None:
        if request.headers["mcp-session-id"] in known:
            await request.result(CALLED)
        else:
            await request.respond(404)

    return known


async def test_a_forgotten_session_is_begun_anew_at_once(peer: HttpPeer) -> None:
    known = sessions(peer)
    slow = Reconnect(delays=(30.0,))  # which a server that is there is not waited for
    async with Client(peer.url, reconnect=slow, protocol="2025-11-25") as client:
        await client.list_tools()
        assert not (await client.call_tool("once")).is_error
        known.clear()
        # It was refused, so it did not run: it is asked again although it must not run twice.
        assert not (await client.call_tool("once")).is_error
        assert client.state is Phase.READY
    assert len(peer.asked("initialize")) == 2
    assert len(peer.asked("tools/call")) == 3


async def test_many_calls_in_a_forgotten_session_begin_one_new_session(peer: HttpPeer) -> None:
    known = sessions(peer)
    async with Client(peer.url, reconnect=QUICK, protocol="2025-11-25") as client:
        await client.list_tools()
        known.clear()
        results = await asyncio.gather(*(client.call_tool("once") for _ in range(20)))
        assert not any(result.is_error for result in results)
    assert len(peer.asked("initialize")) == 2


async def test_without_a_policy_a_forgotten_session_fails_the_call(peer: HttpPeer) -> None:
    known = sessions(peer)
    async with Client(peer.url, reconnect=False, protocol="2025-11-25") as client:
        await client.list_tools()
        known.clear()
        with pytest.raises(ConnectionLost, match="ended the session") as caught:
            await client.call_tool("once")
        assert not caught.value.maybe_executed


async def test_a_server_that_forgets_every_session_is_retried_with_delays(peer: HttpPeer) -> None:
    known = sessions(peer)

    @peer.on("tools/call")
    async def forget(request: Request) -> None:
        known.clear()
        await request.respond(404)

    policy = Reconnect(delays=(0.05, 0.5), jitter=0)
    async with Client(peer.url, reconnect=policy, protocol="2025-11-25") as client:
        await client.list_tools()
        with pytest.raises(ConnectionLost):
            await client.call_tool("once", timeout=3)
    assert 3 <= len(peer.asked("initialize")) <= 10


@pytest.mark.parametrize(("tool", "asked"), [("once", 1), ("again", 2)])
async def test_a_broken_exchange_is_repeated_only_where_allowed(
    peer: HttpPeer, tool: str, asked: int
) -> None:
    modern(peer)

    @peer.on("tools/list")
    async def tools(request: Request) -> None:
        await request.result({"resultType": "complete", **TOOLS})

    @peer.on("tools/call")
    async def cut(request: Request) -> None:
        if len(peer.asked("tools/call")) == 1:
            request.cut()
        else:
            await request.result({"resultType": "complete", **CALLED})

    async with Client(peer.url, reconnect=QUICK) as client:
        await client.list_tools()
        if tool == "again":
            assert not (await client.call_tool(tool)).is_error
        else:
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool(tool)
            assert caught.value.maybe_executed
        assert client.state is Phase.READY  # the others were not concerned
    assert len(peer.asked("tools/call")) == asked


async def test_an_answer_that_is_too_large_is_not_asked_for_again(peer: HttpPeer) -> None:
    modern(peer)

    @peer.on("tools/call")
    async def much(request: Request) -> None:
        await request.result({"content": [{"type": "text", "text": "x" * 20_000}]})

    limits = Limits(max_message=10_000)
    async with Client(peer.url, reconnect=QUICK, limits=limits, validate_output=False) as client:
        with pytest.raises(LimitReached, match="10000 bytes"):
            await client.call_tool("again")
    assert len(peer.asked("tools/call")) == 1


async def test_a_server_that_was_unreachable_is_reached_again(peer: HttpPeer) -> None:
    modern(peer)

    @peer.on("tools/call")
    async def call(request: Request) -> None:
        await request.result({"resultType": "complete", **CALLED})

    states: list[Phase] = []
    async with Client(
        peer.url, reconnect=QUICK, validate_output=False, on_state=states.append
    ) as client:
        states.clear()
        await peer.stop()
        calling = asyncio.ensure_future(client.call_tool("once"))
        await eventually(lambda: client.state is Phase.FAILED)
        assert not calling.done()
        await peer.start(peer.port, None)
        assert not (await calling).is_error
        assert states[-1] is Phase.READY
    assert len(peer.asked("tools/call")) == 1


async def test_a_listen_stream_that_broke_is_opened_again(peer: HttpPeer) -> None:
    modern(peer)
    updated = "notifications/resources/updated"

    @peer.on("subscriptions/listen")
    async def listen(request: Request) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": request.message["id"]}
        await request.stream()
        wanted = request.message["params"]["notifications"]
        acknowledged = "notifications/subscriptions/acknowledged"
        params = {"notifications": wanted, "_meta": meta}
        await request.event({"method": acknowledged, "params": params})
        number = len(peer.asked("subscriptions/listen"))
        params = {"uri": f"x://{number}", "_meta": meta}
        await request.event({"method": updated, "params": params})
        if number < 4:
            request.cut()
        else:
            await request.gone.wait()

    async with Client(peer.url, reconnect=QUICK) as client:
        async with client.listen(resources=["x://"]) as changes:
            seen = [(await anext(changes)).params.uri for _ in range(4)]
        assert client.state is Phase.READY
    assert seen == ["x://1", "x://2", "x://3", "x://4"]


async def test_a_subscription_is_opened_again_after_the_server_ended_its_stream(
    peer: HttpPeer,
) -> None:
    modern(peer)

    @peer.on("subscriptions/listen")
    async def listen(request: Request) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": request.message["id"]}
        await request.stream()
        params = {"notifications": {"resourceSubscriptions": ["x://"]}, "_meta": meta}
        await request.event(
            {"method": "notifications/subscriptions/acknowledged", "params": params}
        )
        if len(peer.asked("subscriptions/listen")) == 1:
            await request.event_result({"resultType": "complete", "_meta": meta})  # shutting down
            await request.end()
        else:
            await request.gone.wait()

    async with Client(peer.url, reconnect=QUICK) as client:
        await client.subscribe("x://")
        await peer.until_asked("subscriptions/listen", 2)
