"""Hearing how far a call is."""

import asyncio
from typing import Any

import pytest

from mcpearl import Client, Context, RequestTimeout, Server
from tests.waiting import eventually

from .peers import client_of, modern_peer

BOTH = pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])


def an_app() -> Server:
    app = Server("progress")

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            await ctx.progress(number + 1, to, f"step {number + 1}")
        return "counted"

    return app


@BOTH
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_progress_callbacks_run_in_order_and_before_the_call_returns(
    protocol: str, kind: str
) -> None:
    heard: list[Any] = []

    def sync(params: Any) -> None:
        heard.append((params.progress, params.total, params.message))

    async def slow(params: Any) -> None:
        await asyncio.sleep(0.001)
        sync(params)

    async with Client(an_app(), protocol=protocol) as client:
        callback = sync if kind == "sync" else slow
        await client.call_tool("count", {"to": 20}, on_progress=callback)
        assert heard == [(n, 20, f"step {n}") for n in range(1, 21)]


async def test_the_callback_of_the_client_is_for_calls_without_one() -> None:
    general: list[Any] = []
    special: list[Any] = []
    async with Client(an_app(), on_progress=general.append) as client:
        await client.call_tool("count", {"to": 1})
        await client.call_tool("count", {"to": 2}, on_progress=special.append)
    assert (len(general), len(special)) == (1, 2)


async def test_progress_is_not_asked_for_without_a_callback() -> None:
    peer = modern_peer(tools_call=lambda _: {"content": []})
    async with await client_of(peer, validate_output=False) as client:
        await client.call_tool("t")
        await client.call_tool("t", on_progress=lambda _: None)
    first, second = (m["params"]["_meta"] for m in peer.asked("tools/call"))
    assert "progressToken" not in first
    assert "progressToken" in second


async def test_each_call_gets_its_own_progress() -> None:
    heard: dict[int, list[float]] = {n: [] for n in range(1, 20)}
    async with Client(an_app()) as client:
        await asyncio.gather(
            *(
                client.call_tool(
                    "count",
                    {"to": n},
                    on_progress=lambda p, n=n: heard[n].append(p.progress),
                )
                for n in heard
            )
        )
    assert heard == {n: list(range(1, n + 1)) for n in heard}


async def test_progress_of_an_unknown_request_is_ignored() -> None:
    peer = modern_peer(tools_call=lambda _: {"content": []})
    heard: list[Any] = []
    async with await client_of(peer, validate_output=False) as client:
        await client.call_tool("t", on_progress=heard.append)
        for token in (peer.asked("tools/call")[0]["id"], 99, "x", -1, 1.5, None, [1]):
            params = {"progressToken": token, "progress": 1}
            peer.send(method="notifications/progress", params=params)
        peer.send(method="notifications/progress", params={"progressToken": 3})
        await client.call_tool("t")
    assert heard == []


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_callback_that_raises_does_not_fail_the_call(kind: str) -> None:
    def sync(params: Any) -> None:
        raise RuntimeError("no")

    async def later(params: Any) -> None:
        raise RuntimeError("no")

    async with Client(an_app()) as client:
        callback = sync if kind == "sync" else later
        result = await client.call_tool("count", {"to": 3}, on_progress=callback)
        assert result.content[0].text == "counted"


async def test_a_callback_that_never_ends_costs_no_more_than_the_calls_time() -> None:
    async def stuck(params: Any) -> None:
        await asyncio.Event().wait()

    async with Client(an_app()) as client:
        calling = client.call_tool("count", {"to": 3}, on_progress=stuck, timeout=2)
        result = await asyncio.wait_for(calling, 30)
        assert result.content[0].text == "counted"


async def test_a_callback_that_never_ends_does_not_hold_up_a_timeout() -> None:
    async def stuck(params: Any) -> None:
        await asyncio.Event().wait()

    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, max_timeout=0.2) as client:
        calling = asyncio.ensure_future(client.call_tool("t", on_progress=stuck, timeout=0.1))
        await eventually(lambda: peer.asked("tools/call"))
        params = {"progressToken": peer.asked("tools/call")[0]["id"], "progress": 1}
        peer.send(method="notifications/progress", params=params)
        with pytest.raises(RequestTimeout):
            await asyncio.wait_for(calling, 30)
        assert not client._link.connection.progress.feeds
