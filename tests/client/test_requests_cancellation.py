"""A caller that gives up: the server is told, and nothing of the call is left."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Server
from tests.waiting import eventually

from .peers import Script, client_of, legacy_peer, modern_peer


@pytest.mark.parametrize("peer_of", [modern_peer, legacy_peer])
async def test_a_cancelled_call_tells_the_server_once(peer_of: Any) -> None:
    peer = peer_of(tools_call=lambda _: None)
    async with await client_of(peer, validate_output=False) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await eventually(lambda: peer.asked("tools/call"))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        (call,) = peer.asked("tools/call")
        (cancelled,) = peer.asked("notifications/cancelled")
        assert cancelled["params"]["requestId"] == call["id"]
        assert not len(client._link.connection.end.pending)
        peer.send(id=call["id"], result={"content": []})  # too late, and harmless
        peer["tools/call"] = lambda _: {"content": []}
        await client.call_tool("t")


async def test_a_deadline_of_the_caller_is_a_cancellation() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.call_tool("t")
    assert len(peer.asked("notifications/cancelled")) == 1


async def test_an_answered_call_is_not_cancelled_any_more() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await eventually(lambda: peer.asked("tools/call"))
        peer.send(id=peer.asked("tools/call")[0]["id"], result={"content": []})
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert not peer.asked("notifications/cancelled")


async def test_a_thousand_calls_given_up_leave_nothing() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        calls = [asyncio.ensure_future(client.call_tool("t")) for _ in range(1000)]
        await eventually(lambda: len(peer.asked("tools/call")) == 1000)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        connection = client._link.connection
        assert not len(connection.end.pending)
        assert not connection.progress.callbacks
        ids = {m["params"]["requestId"] for m in peer.asked("notifications/cancelled")}
        assert ids == {m["id"] for m in peer.asked("tools/call")}


async def test_a_call_with_a_stuck_progress_callback_can_be_given_up() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    stopped = asyncio.Event()

    async def stuck(params: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with await client_of(peer) as client:
        calling = asyncio.ensure_future(client.call_tool("t", on_progress=stuck))
        await eventually(lambda: peer.asked("tools/call"))
        params = {"progressToken": peer.asked("tools/call")[0]["id"], "progress": 1}
        peer.send(method="notifications/progress", params=params)
        await asyncio.sleep(0)
        calling.cancel()
        done, _ = await asyncio.wait([calling], timeout=30)
        assert done
        await asyncio.wait_for(stopped.wait(), 30)


async def test_the_handler_of_a_real_server_is_stopped() -> None:
    app = Server("slow")
    started, stopped = asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with Client(app) as client:
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await started.wait()
        calling.cancel()
        await asyncio.wait_for(stopped.wait(), 30)


async def test_a_process_gets_the_cancellation_too(tmp_path: Path) -> None:
    server = Script(tmp_path, "welcome()\nfor message in messages(): pass")
    async with Client(server.path) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await eventually(lambda: "tools/call" in server.methods())
        calling.cancel()
        await eventually(lambda: "notifications/cancelled" in server.methods())
    received = {message["method"]: message for message in server.received()}
    id = received["tools/call"]["id"]
    assert received["notifications/cancelled"]["params"]["requestId"] == id
