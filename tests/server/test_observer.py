"""Observers: told of every call, connection and bound, and never able to harm one."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from mcpearl import Context, Limits, Observer, Server, ToolError
from mcpearl.protocol.events import Call
from tests.server.wire import ERAS, wire
from tests.transports.http_server.test_sessions import INITIALIZE
from tests.transports.raw_http import serving
from tests.waiting import eventually


class Diary(Observer):
    def __init__(self) -> None:
        self.open: list[Call] = []
        self.ended: list[tuple[str, str, bool]] = []
        self.connections: list[str] = []
        self.bounds: list[str] = []
        self.counters: Any = None

    def started(self, counters: Any) -> None:
        self.counters = counters

    def call_began(self, call: Call) -> Call:
        self.open.append(call)
        return call

    def call_ended(self, began: Call, call: Call, outcome: str, size: int, answer: object) -> None:
        assert began is call
        self.open.remove(call)
        self.ended.append((call.method, outcome, size > 0))

    def connection_began(self, connection: object) -> None:
        self.connections.append("began")

    def connection_ended(self, connection: object, reason: Exception | None) -> None:
        self.connections.append("ended")

    def bound_reached(self, bound: str, detail: str) -> None:
        self.bounds.append(bound)


def make_app(observer: Observer, limits: Limits | None = None) -> Server:
    app = Server("watched", observer=observer, limits=limits)

    @app.tool
    async def work() -> str:
        return "done"

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    @app.tool
    async def large() -> str:
        return "x" * 5000

    @app.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.roots())

    app.add_resource("a://1", lambda: "x", name="a")
    return app


@pytest.mark.parametrize("version", ERAS)
async def test_every_call_is_told_once_with_its_outcome(version: str) -> None:
    diary = Diary()
    async with wire(make_app(diary), version) as client:
        await client.call("work")
        await client.call("fail")
        await client.ask("resources/read", {"uri": "a://2"})
        id = client.request("tools/call", {"name": "wait", "arguments": {}})
        await asyncio.sleep(0)
        assert [call.method for call in diary.open] == ["tools/call"]
        client.cancel(id)
        await client.ask("tools/list")
    assert sorted(diary.ended) == [
        ("resources/read", "error", True),
        ("tools/call", "cancelled", False),
        ("tools/call", "result", True),
        ("tools/call", "tool_error", True),
        ("tools/list", "result", True),
    ]
    assert not diary.open
    assert diary.connections == ["began", "ended"]


async def test_a_call_whose_client_leaves_is_cancelled_for_the_observer_too() -> None:
    diary = Diary()
    async with wire(make_app(diary)) as client:
        client.request("tools/call", {"name": "wait", "arguments": {}})
        await client.ask("tools/list")
    await asyncio.sleep(0)
    assert ("tools/call", "cancelled", False) in diary.ended
    assert not diary.open


async def test_bounds_that_are_reached_are_told() -> None:
    diary = Diary()
    limits = Limits(max_outgoing=3000, max_subscriptions=1)
    async with wire(make_app(diary, limits)) as client:
        assert "max_outgoing" in (await client.call("large"))["error"]["message"]
    assert diary.bounds == ["Limits.max_outgoing"]


async def test_a_subscription_is_a_call_that_ends_with_its_client() -> None:
    diary = Diary()
    async with wire(make_app(diary), ERAS[1]) as client:
        id = client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.next()
        assert [call.method for call in diary.open] == ["subscriptions/listen"]
        client.cancel(id)
        await client.ask("tools/list")
        assert not diary.open
        client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.next()
    outcomes = [outcome for method, outcome, _ in diary.ended if method != "tools/list"]
    assert outcomes[0] == "cancelled"
    assert len(outcomes) == 2, "the end of the connection ends the other"


async def test_bounds_of_http_are_told_too() -> None:
    diary = Diary()
    app = make_app(diary)
    async with serving(app, max_sessions=1) as client:
        session = await client.initialize()
        stream = await session.get()
        assert (await client.post(INITIALIZE)).status == 503
        stream.close()
    assert "max_sessions" in diary.bounds


async def test_too_many_connections_of_http_are_told() -> None:
    diary = Diary()
    app = make_app(diary)
    async with serving(app, max_connections=1) as client:
        await eventually(lambda: not app.core.budget.held)  # for the one that waited for the port
        _, first = await client.connect()
        assert (await client.call("work")).status == 503
        first.close()
    assert "max_connections" in diary.bounds


async def test_a_full_queue_of_threads_is_told() -> None:
    diary, go = Diary(), threading.Event()
    app = Server("watched", observer=diary, threads=1)
    app._pool.backlog = 1
    app.add_tool(go.wait, name="block", description="Block.")
    async with wire(app) as client:
        ids = [client.request("tools/call", {"name": "block", "arguments": {}}) for _ in range(3)]
        refused = (await client.next())["result"]["content"][0]["text"]
        assert "all 1 threads are busy and 1 calls wait already" in refused
        go.set()
        assert len(ids) == 3
    assert diary.bounds == ["threads"]


async def test_counters_can_be_read_at_any_time() -> None:
    diary = Diary()
    async with wire(make_app(diary)) as client:
        client.request("tools/call", {"name": "wait", "arguments": {}})
        client.raw(b"{not json")
        await client.ask("tools/list")
        counters: Mapping[str, int] = diary.counters()
        assert counters["connections"] == 1
        assert counters["calls_in_flight"] == 1
        assert counters["messages_malformed"] == 1
    assert diary.counters()["connections"] == 0


class Broken(Observer):
    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError("the exporter is away")


@pytest.mark.parametrize("version", ERAS)
async def test_an_observer_that_fails_costs_no_call(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire(make_app(Broken()), version) as client:
        answer = await client.call("work")
        assert answer["result"]["content"][0]["text"] == "done"
    assert "the exporter is away" in caplog.text
