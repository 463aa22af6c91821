"""Observers of clients, several of them, and those that block."""

import asyncio
import threading
from typing import Any

import pytest

from mcpearl import Client, McpError, Observer, Server, ToolError
from mcpearl.telemetry.behind import Behind
from tests.waiting import eventually


class Diary(Observer):
    """The observer that a user writes: everything in 20 lines."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def call_began(self, call: Any) -> str:
        return f"note of {call.method}"

    def call_ended(self, began: Any, call: Any, outcome: str, size: int, answer: Any) -> None:
        assert began == f"note of {call.method}"
        if call.method == "tools/call":
            self.seen.append((call.params.name, outcome, type(answer).__name__))

    def connection_began(self, connection: object) -> None:
        self.seen.append("connected")

    def connection_ended(self, connection: object, reason: Exception | None) -> None:
        self.seen.append(f"left: {reason}")


class Broken(Observer):
    def call_began(self, call: Any) -> None:
        raise RuntimeError("away")

    def call_ended(self, began: Any, call: Any, outcome: str, size: int, answer: Any) -> None:
        raise RuntimeError("away")


def make_app(**options: Any) -> Server:
    app = Server("watched", telemetry=False, **options)

    @app.tool
    async def work() -> str:
        return "done"

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    return app


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_calls_of_a_client_are_told_once(version: str) -> None:
    diary = Diary()
    async with Client(make_app(), observer=[diary, Broken()], protocol=version) as client:
        await client.call_tool("work")
        await client.call_tool("fail")
        with pytest.raises(McpError):
            await client.call_tool("nothing")
        waiting = asyncio.ensure_future(client.call_tool("wait"))
        await eventually(lambda: waiting.done() or client._link.connection.end.pending)  # type: ignore[union-attr]
        waiting.cancel()
        await asyncio.wait([waiting])
    assert diary.seen == [
        "connected",
        ("work", "result", "TypedToolResult"),
        ("fail", "tool_error", "TypedToolResult"),
        ("nothing", "error", "McpError"),
        ("wait", "cancelled", "NoneType"),
        "left: None",
    ]


async def test_several_observers_are_told_and_one_that_fails_disturbs_none() -> None:
    first, last = Diary(), Diary()
    async with Client(make_app(observer=[first, Broken(), last])) as client:
        assert (await client.call_tool("work")).text == "done"
    assert first.seen == last.seen
    assert ("work", "result", "CallToolResult") in first.seen


async def test_an_observer_that_blocks_holds_up_no_call() -> None:
    go = threading.Event()

    class Blocking(Observer):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def call_ended(self, began: Any, call: Any, outcome: str, size: int, answer: Any) -> None:
            blocks.set()
            go.wait()
            self.seen.append(outcome)

    blocking, blocks = Blocking(), threading.Event()
    behind = Behind(blocking, limit=3)
    async with Client(make_app(observer=behind)) as client:

        async def observed() -> bool:
            assert (await client.call_tool("work")).text == "done"
            return blocks.is_set()

        await eventually(observed)  # what was told before may have filled the queue
        before = behind.dropped
        for _ in range(20):
            assert (await client.call_tool("work")).text == "done"
        assert behind.dropped > before
        go.set()
        await eventually(lambda: "result" in blocking.seen)


async def test_metrics_beside_another_observer() -> None:
    app = make_app(observer=Diary())
    measuring = app.measure()
    async with Client(app) as client:
        await client.call_tool("work")
        calls = measuring.snapshot().calls
    assert sum(calls["tools/call", "work", ""][2:]) == 1
