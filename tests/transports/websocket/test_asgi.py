"""WebSocket under an ASGI server that is not ours: a mounted application, and its flow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from mcpearl import Client, ConnectionLost, Limits, Server
from mcpearl.net.unread import DOES_NOT_READ
from mcpearl.runtime.budget import Budget
from mcpearl.transports.http_server.origin import LOCAL_HOSTS, ServedLocation
from mcpearl.transports.websocket.asgi import AsgiWebSocket, AsgiWebSockets
from tests.ports import free_port
from tests.server.wire import HANGS, LEGACY, MODERN
from tests.transports.suite_server import BOOK, make_app
from tests.transports.test_suite import Ear
from tests.transports.websocket.test_websocket import Doorman, answer, call, opened
from tests.waiting import eventually, turns


@asynccontextmanager
async def mounted(app: Server, **options: Any) -> AsyncIterator[str]:
    """Serve inside of Starlette, on uvicorn as it comes."""
    endpoint = app.asgi(websocket="/ws", **options)
    outer = Starlette(routes=[Mount("/tools", endpoint)], lifespan=lambda _: endpoint.running())
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(outer, port=port, log_level="critical"))
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        yield f"127.0.0.1:{port}/tools"
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_mounted_websocket_serves_both_eras(version: str):
    heard: list[float] = []
    told: list[str] = []
    app = make_app()
    async with mounted(app) as base:
        async with Client(
            f"ws://{base}/ws", protocol=version, on_notification=lambda n: told.append(n.method)
        ) as client:
            work = (client.call_tool("add", {"a": number, "b": 1}) for number in range(100))
            results = await asyncio.gather(*work)
            assert [r.structured_content["result"] for r in results] == list(range(1, 101))
            text = " ".join(f"grüße {number}" for number in range(250_000))
            result = await client.call_tool("echo", {"text": text})
            assert result.structured_content == {"result": text}
            await client.call_tool(
                "count", {"steps": 50}, on_progress=lambda p: heard.append(p.progress)
            )
            assert heard == list(range(1, 51))
            await client.subscribe(BOOK)
            await client.call_tool("write")
            await eventually(lambda: "notifications/resources/updated" in told)
        await eventually(lambda: not any(c.subscriber().uris for c in app.core.roster))
        async with Client(f"http://{base}/mcp", protocol=version) as client:  # and so is HTTP
            await client.ping()


async def test_a_call_in_flight_ends_with_its_client():
    app = make_app()
    async with mounted(app) as base:
        client = Client(f"ws://{base}/ws")
        await client.connect()
        pending = asyncio.create_task(client.call_tool("work", {"number": 1, "seconds": 60}))
        await eventually(lambda: any(c.end.in_flight for c in app.core.roster))
        await client.close()
        with pytest.raises(ConnectionLost):
            await pending
        await eventually(lambda: not app.core.roster)


async def test_who_may_not_come_in():
    async with mounted(make_app(), allowed_hosts=LOCAL_HOSTS) as base:
        refusals = [
            (f"ws://{base}/elsewhere", {}, 404),
            (f"ws://{base}/ws", {"Origin": "https://evil.example"}, 403),
            (f"ws://{base}/ws", {"Host": "evil.example"}, 421),
        ]
        for url, headers, status in refusals:
            with pytest.raises(ConnectionLost, match=f"it answered {status}"):
                async with Client(url, headers=headers):
                    pass
        with pytest.raises(InvalidStatus) as caught:
            async with connect(f"ws://{base}/ws", proxy=None):
                pass
        assert caught.value.response.status_code == 400


async def test_the_gate_says_who_comes_in():
    gate: Any = Doorman()
    async with mounted(make_app(), auth=gate) as base:
        for token, name in (("quick", "ada"), ("slow", "grace")):
            headers = {"Authorization": f"Bearer {token}"}
            async with Client(f"ws://{base}/ws", headers=headers) as client:
                assert (await client.call_tool("whoami")).structured_content == {"result": name}
        with pytest.raises(ConnectionLost, match="it answered 401"):
            async with Client(f"ws://{base}/ws"):
                pass


async def test_their_number_is_bounded():
    async with mounted(make_app(), max_websockets=1) as base, Client(f"ws://{base}/ws") as first:
        with pytest.raises(ConnectionLost, match=r"1013.*as many clients as it takes, 1"):
            async with Client(f"ws://{base}/ws", reconnect=False) as second:
                await second.ping()
        await first.ping()


async def test_bad_input_is_answered_and_costs_only_itself():
    app = make_app(limits=Limits(max_message=1000))
    wrong: list[tuple[Any, str]] = [
        (b"binary", "binary frame is not a message"),
        ("no JSON", ""),
        ("x" * 2000, "over the limit of 1000 bytes"),
    ]
    async with mounted(app) as base, opened(f"ws://{base}/ws") as peer:
        for nonsense, says in wrong:
            await peer.send(nonsense)
            assert says in (await answer(peer))["error"]["message"]
        await peer.send(call("add", 7, a=1, b=2))
        assert (await answer(peer))["id"] == 7


async def test_a_server_that_ends_finishes_calls_first():
    async with mounted(make_app()) as base:
        client = Client(f"ws://{base}/ws", reconnect=False)
        await client.connect()
        await client.ping()
    with pytest.raises(ConnectionLost):
        await client.ping()
    await client.close()


# The flow, with the ASGI server's side held by hand


class Hand:
    """The two callables of an ASGI server; nothing is sent while `taking` is clear."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.taking = asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        return await self.events.get()

    async def send(self, event: dict[str, Any]) -> None:
        await self.taking.wait()
        self.sent.append(event)


class Served(Ear):
    def __init__(self) -> None:
        super().__init__()
        self.flow: list[bool] = []

    def writable(self, flowing: bool) -> None:
        self.flow.append(flowing)

    async def drain(self, grace: float) -> None: ...


async def test_a_client_that_does_not_read_is_waited_for_then_dropped():
    hand, served = Hand(), Served()
    transport = AsgiWebSocket(
        hand.receive, hand.send, Limits(max_outgoing=3_000_000), Budget().account()
    )
    running = asyncio.create_task(transport.run(served))
    await asyncio.sleep(0)
    transport.send(b"x" * 1_500_000)
    assert served.flow == [False]
    hand.taking.set()
    await eventually(lambda: served.flow == [False, True])
    hand.taking.clear()
    for _ in range(4):
        transport.send(b"x" * 1_000_000)
    assert served.is_lost
    assert "does not read" in str(served.reason)
    async with asyncio.timeout(HANGS):
        await running


async def test_a_client_that_does_not_read_has_so_much_time():
    hand, served, budget = Hand(), Served(), Budget()
    transport = AsgiWebSocket(hand.receive, hand.send, Limits(), budget.account(), 0.05)
    running = asyncio.create_task(transport.run(served))
    await asyncio.sleep(0)
    transport.send(b"x" * 100_000)
    assert budget.held >= 100_000
    await eventually(lambda: served.is_lost)
    assert str(served.reason) == DOES_NOT_READ
    async with asyncio.timeout(HANGS):
        await running
    assert budget.held == 0


async def test_what_a_client_does_not_read_is_counted():
    hand, served, budget = Hand(), Served(), Budget(50_000)
    transport = AsgiWebSocket(hand.receive, hand.send, Limits(), budget.account())
    running = asyncio.create_task(transport.run(served))
    await asyncio.sleep(0)
    transport.send(b"x" * 100_000)
    assert served.is_lost
    assert "there is no room" in str(served.reason)
    async with asyncio.timeout(HANGS):
        await running


async def test_a_server_that_has_enough_reads_no_more():
    hand, served = Hand(), Served()
    transport = AsgiWebSocket(hand.receive, hand.send, Limits(), Budget().account())
    running = asyncio.create_task(transport.run(served))
    await asyncio.sleep(0)
    transport.pause()
    for number in range(3):
        hand.events.put_nowait({"type": "websocket.receive", "text": f'{{"n":{number}}}'})
    await turns()
    assert len(served.messages) <= 1  # the one that was being waited for
    transport.resume()
    await eventually(lambda: len(served.messages) == 3)
    hand.taking.set()
    transport.send(b"{}")
    await transport.close()
    async with asyncio.timeout(HANGS):
        await running
    assert [event["type"] for event in hand.sent] == ["websocket.send", "websocket.close"]


async def test_one_client_too_many_is_told():
    hand = Hand()
    hand.taking.set()
    sockets = AsgiWebSockets(
        ServedLocation("/ws"), lambda *_: Served(), Limits(), Budget(), max_connections=0
    )
    hand.events.put_nowait({"type": "websocket.connect"})
    scope = {"type": "websocket", "path": "/ws", "headers": [], "subprotocols": ["mcp"]}
    await sockets(scope, hand.receive, hand.send)
    accepted, closed = hand.sent
    assert accepted["subprotocol"] == "mcp"
    assert closed["code"] == 1013
    assert "as many clients as it takes, 0" in closed["reason"]
