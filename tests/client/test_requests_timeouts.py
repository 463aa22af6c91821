"""Every request ends: by its answer, by its time, or by the maximum that progress cannot move."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Context, RequestTimeout, Server

from .peers import Message, Script, client_of, eventually, legacy_peer, modern_peer

DONE = {"content": []}


@pytest.mark.parametrize("peer_of", [modern_peer, legacy_peer])
async def test_a_request_that_is_not_answered_ends_and_the_server_is_told(peer_of: Any) -> None:
    peer = peer_of(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        with pytest.raises(RequestTimeout, match=r"tools/call.*0\.05 s") as caught:
            await client.call_tool("slow", timeout=0.05)
        assert isinstance(caught.value, TimeoutError)
        assert not len(client._link.connection.end.pending)
    (call,) = peer.asked("tools/call")
    (cancelled,) = peer.asked("notifications/cancelled")
    assert cancelled["params"]["requestId"] == call["id"]
    assert "0.05" in cancelled["params"]["reason"]


async def test_the_time_is_the_clients_or_the_calls() -> None:
    peer = modern_peer(tools_call=lambda _: None, tools_list=lambda _: None)
    async with await client_of(peer, timeout=0.05) as client:
        for ask in (client.call_tool("t"), client.list_tools()):
            with pytest.raises(RequestTimeout) as caught:
                await ask
            assert caught.value.seconds == 0.05
        peer["server/discover"] = lambda _: None
        with pytest.raises(RequestTimeout):
            await client.ping(timeout=0.02)


async def test_a_call_may_take_longer_than_the_clients_maximum_when_it_says_so() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, max_timeout=0.05, validate_output=False) as client:
        calling = asyncio.ensure_future(client.call_tool("t", timeout=30))
        await asyncio.sleep(0.2)
        assert not calling.done()
        peer.send(id=peer.asked("tools/call")[0]["id"], result=DONE)
        await calling


async def test_a_late_answer_is_ignored() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, validate_output=False) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.02)
        late = peer.asked("tools/call")[0]["id"]
        peer.send(id=late, result=DONE)
        peer.send(id=late, error={"code": 1, "message": "late"})
        peer["tools/call"] = lambda _: DONE
        await client.call_tool("t")
        assert client._link.connection.end.pending.late == 2


async def test_many_requests_with_times_of_their_own() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        times = [0.2, 0.02, 0.1, 0.02, 0.15]
        calls = [asyncio.ensure_future(client.call_tool("t", timeout=each)) for each in times]
        ended: list[float] = []
        for call, each in zip(calls, times, strict=True):
            call.add_done_callback(lambda _, each=each: ended.append(each))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, RequestTimeout) for result in results)
        assert ended == sorted(times)


async def ticking(peer: Any, id: Any, every: float) -> None:
    progress = 0
    while True:
        await asyncio.sleep(every)
        progress += 1
        params = {"progressToken": id, "progress": progress}
        peer.send(method="notifications/progress", params=params)


async def test_progress_gives_a_request_more_time() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, validate_output=False) as client:
        calling = asyncio.ensure_future(
            client.call_tool("t", timeout=1, on_progress=lambda _: None)
        )
        await eventually(lambda: peer.asked("tools/call"))
        id = peer.asked("tools/call")[0]["id"]
        clock = asyncio.ensure_future(ticking(peer, id, 0.05))
        await asyncio.sleep(2.5)
        assert not calling.done()
        clock.cancel()
        peer.send(id=id, result=DONE)
        await calling


async def test_but_not_more_than_the_maximum() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, max_timeout=1.5) as client:
        calling = asyncio.ensure_future(
            client.call_tool("t", timeout=1.2, on_progress=lambda _: None)
        )
        await eventually(lambda: peer.asked("tools/call"))
        clock = asyncio.ensure_future(ticking(peer, peer.asked("tools/call")[0]["id"], 0.02))
        with pytest.raises(RequestTimeout, match="maximum"):
            await asyncio.wait_for(calling, 30)
        clock.cancel()
    assert peer.asked("notifications/cancelled")


async def test_progress_of_others_gives_nothing() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        calling = asyncio.ensure_future(
            client.call_tool("t", timeout=0.2, on_progress=lambda _: None)
        )
        clock = asyncio.ensure_future(ticking(peer, "another", 0.02))
        with pytest.raises(RequestTimeout):
            await asyncio.wait_for(calling, 30)
        clock.cancel()


async def test_the_handler_of_a_real_server_is_stopped() -> None:
    app = Server("slow")
    stopped = asyncio.Event()

    @app.tool
    async def wait(ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    for protocol in ("2025-11-25", "2026-07-28"):
        stopped.clear()
        async with Client(app, protocol=protocol) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("wait", timeout=0.05)
            await asyncio.wait_for(stopped.wait(), 30)


async def test_a_process_is_told_too(tmp_path: Path) -> None:
    server = Script(tmp_path, "welcome()\nfor message in messages(): pass")
    async with Client(server.path) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.1)
        await eventually(lambda: "notifications/cancelled" in server.methods())


async def test_a_timeout_between_rounds_counts_for_each_round() -> None:
    def pace(message: Message) -> Any:
        if "requestState" in message["params"]:
            return None
        return {"resultType": "input_required", "requestState": "s", "inputRequests": {}}

    peer = modern_peer(tools_call=pace)
    async with await client_of(peer) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.1)
    assert len(peer.asked("tools/call")) == 2
    (cancelled,) = peer.asked("notifications/cancelled")
    assert cancelled["params"]["requestId"] == peer.asked("tools/call")[1]["id"]
