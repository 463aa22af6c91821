"""Every request ends: by its answer, by its time, or by the maximum that progress cannot move."""

import asyncio
from math import inf
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, ConnectionLost, Context, Reconnect, RequestTimeout, Server
from mcpearl.client.requests import ClientCall
from mcpearl.protocol.pending import PendingRequest
from mcpearl.testing.clock import MovableClock
from mcpearl.types.base import RequestParams, Result
from tests.waiting import eventually

from ..transports.http_peer import Request, http_peer, modern
from .peers import Message, Script, client_of, legacy_peer, modern_peer

DONE = {"content": []}
HANGS = 60  # seconds after which a test has failed


@pytest.mark.parametrize("peer_of", [modern_peer, legacy_peer])
async def test_a_request_that_is_not_answered_is_cancelled(peer_of: Any) -> None:
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


async def test_the_timeout_is_that_of_the_call_or_else_of_the_client() -> None:
    peer = modern_peer(tools_call=lambda _: None, tools_list=lambda _: None)
    async with await client_of(peer, timeout=0.05) as client:
        for ask in (client.call_tool("t"), client.list_tools()):
            with pytest.raises(RequestTimeout) as caught:
                await ask
            assert caught.value.seconds == 0.05
        peer["server/discover"] = lambda _: None
        with pytest.raises(RequestTimeout):
            await client.ping(timeout=0.02)


async def test_a_timeout_of_a_call_may_be_longer_than_the_maximum_of_the_client() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, max_timeout=0.05, validate_output=False) as client:
        started = asyncio.get_running_loop().time()
        calling = asyncio.ensure_future(client.call_tool("t", timeout=30))
        await eventually(lambda: peer.asked("tools/call"))
        assert client._link.connection.end.pending.next_deadline() >= started + 30
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


async def test_requests_expire_in_the_order_of_their_timeouts() -> None:
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
            client.call_tool("t", timeout=30, max_timeout=90, on_progress=lambda _: None)
        )
        await eventually(lambda: peer.asked("tools/call"))
        pending = client._link.connection.end.pending
        first = pending.next_deadline()
        id = peer.asked("tools/call")[0]["id"]
        clock = asyncio.ensure_future(ticking(peer, id, 0.01))
        await eventually(lambda: pending.next_deadline() > first + 0.1)
        clock.cancel()
        peer.send(id=id, result=DONE)
        await calling


async def test_the_timeout_of_a_call_is_its_deadline() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        calling = asyncio.ensure_future(
            client.call_tool("t", timeout=0.5, on_progress=lambda _: None)
        )
        await eventually(lambda: peer.asked("tools/call"))
        pending = client._link.connection.end.pending
        first = pending.next_deadline()
        clock = asyncio.ensure_future(ticking(peer, peer.asked("tools/call")[0]["id"], 0.02))
        with pytest.raises(RequestTimeout, match=r"within 0\.5 s"):
            await calling
        clock.cancel()
        assert asyncio.get_running_loop().time() >= first


async def test_progress_gives_a_request_no_more_than_the_maximum() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        calling = asyncio.ensure_future(
            client.call_tool("t", timeout=1.2, max_timeout=1.5, on_progress=lambda _: None)
        )
        await eventually(lambda: peer.asked("tools/call"))
        clock = asyncio.ensure_future(ticking(peer, peer.asked("tools/call")[0]["id"], 0.02))
        with pytest.raises(RequestTimeout, match="maximum"):
            await asyncio.wait_for(calling, 30)
        clock.cancel()
    assert peer.asked("notifications/cancelled")


async def test_progress_of_another_request_gives_no_time() -> None:
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


async def test_a_process_gets_the_cancellation_too(tmp_path: Path) -> None:
    server = Script(tmp_path, "welcome()\nfor message in messages(): pass")
    async with Client(server.path) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.1)
        await eventually(lambda: "notifications/cancelled" in server.methods())


async def test_the_request_of_a_later_round_is_cancelled_when_the_time_is_over() -> None:
    def pace(message: Message) -> Any:
        if "requestState" in message["params"]:
            return None
        return {"resultType": "input_required", "requestState": "s", "inputRequests": {}}

    peer = modern_peer(tools_call=pace)
    async with await client_of(peer) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.3)
    assert len(peer.asked("tools/call")) == 2
    (cancelled,) = peer.asked("notifications/cancelled")
    assert cancelled["params"]["requestId"] == peer.asked("tools/call")[1]["id"]


async def test_rounds_without_questions_share_the_time_of_the_call() -> None:
    """A server that only asks to be called again cannot hold a call longer than its timeout."""
    again = {"resultType": "input_required", "requestState": "s", "inputRequests": {}}
    peer = modern_peer(tools_call=lambda _: again)
    async with asyncio.timeout(HANGS), await client_of(peer, max_rounds=10**6) as client:
        with pytest.raises(RequestTimeout, match=r"within 0\.5 s"):
            await client.call_tool("t", timeout=0.5)
    assert len(peer.asked("tools/call")) > 1


async def test_the_time_stands_still_while_the_application_answers(clock: MovableClock) -> None:
    """What the server takes in all its rounds counts; what a person takes to answer does not."""
    ask = {
        "resultType": "input_required",
        "requestState": "s",
        "inputRequests": {"q": {"method": "roots/list"}},
    }
    peer = modern_peer()
    peer["tools/call"] = lambda _: None
    is_asked, answered = asyncio.Event(), asyncio.Event()

    async def roots() -> list[str]:
        is_asked.set()
        await answered.wait()
        return []

    client = await client_of(peer, roots=roots, validate_output=False, max_timeout=60)
    async with client:
        calling = asyncio.ensure_future(client.call_tool("t", timeout=30))
        await eventually(lambda: peer.asked("tools/call"))
        await clock.advance(20)
        peer.send(id=peer.asked("tools/call")[0]["id"], result=ask)
        await eventually(is_asked.is_set)
        await clock.advance(200)
        answered.set()
        await eventually(lambda: len(peer.asked("tools/call")) == 2)
        await clock.advance(8)
        assert not calling.done()
        await clock.advance(3)
        with pytest.raises(RequestTimeout, match="within 30 s"):
            await calling


async def test_a_server_with_a_session_is_not_late_while_it_is_being_answered(
    clock: MovableClock,
) -> None:
    app = Server("asks")
    asked, answered = asyncio.Event(), asyncio.Event()

    @app.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        await asyncio.Event().wait()
        return "never"

    async def answer(params: Any) -> dict[str, bool]:
        asked.set()
        await answered.wait()
        return {"value": True}

    options: dict[str, Any] = {"timeout": 30, "max_timeout": 300, "keepalive": None}
    async with Client(app, protocol="2025-11-25", elicitation=answer, **options) as client:
        calling = asyncio.ensure_future(client.call_tool("ask"))
        await eventually(asked.is_set)
        await clock.advance(100)
        assert not calling.done()
        answered.set()
        await clock.advance(20)
        assert not calling.done()
        await clock.advance(11)
        with pytest.raises(RequestTimeout, match="within 30 s"):
            await calling
        asked.clear()
        answered.clear()
        calling = asyncio.ensure_future(client.call_tool("ask"))
        await eventually(asked.is_set)
        await clock.advance(301)
        with pytest.raises(RequestTimeout, match="within 300 s, the maximum"):
            await calling
        answered.set()


async def test_progress_that_was_not_asked_for_gives_no_time(clock: MovableClock) -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer) as client:
        calling = asyncio.ensure_future(client.call_tool("t", timeout=30))
        await eventually(lambda: peer.asked("tools/call"))
        params = {"progressToken": peer.asked("tools/call")[0]["id"], "progress": 1}
        await clock.advance(20)
        peer.send(method="notifications/progress", params=params)
        await clock.advance(11)
        with pytest.raises(RequestTimeout, match="within 30 s"):
            await calling


async def test_retries_over_http_end_with_the_time_of_the_call() -> None:
    async with asyncio.timeout(HANGS), http_peer() as peer:
        modern(peer)

        @peer.on("resources/read")
        async def cut(request: Request) -> None:
            request.cut()

        policy = Reconnect(delays=(0.01,))
        async with Client(peer.url, reconnect=policy, timeout=HANGS) as client:
            # It depends on the moment whether the last attempt was lost, or not answered in time.
            with pytest.raises((ConnectionLost, RequestTimeout)):
                await client.read_resource("x://", timeout=0.5)
        assert len(peer.asked("resources/read")) > 1


async def test_waiting_for_a_process_to_come_back_ends_with_the_time_of_the_call(
    tmp_path: Path,
) -> None:
    body = """
    if os.path.exists(LOG): time.sleep(600)
    welcome()
    for message in messages(): sys.exit(3)
    """
    server = Script(tmp_path, body)
    policy = Reconnect(delays=(0.01,))
    async with asyncio.timeout(HANGS), Client(server.path, reconnect=policy) as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.read_resource("x://", timeout=0.5)
        assert caught.value.maybe_executed


async def test_a_login_does_not_use_up_the_time_of_a_call() -> None:
    """A request whose clock stood still when its connection was lost has its whole time again."""
    call = ClientCall("ping", RequestParams(), Result, 5.0, 60.0)
    call.sent.append(PendingRequest(1, "ping", None, 5.0, inf, inf, 60.0))
    assert call.deadlines(100.0) == (105.0, 160.0)
    assert call.time_left(101.0) == (4.0, 59.0)


async def test_an_application_may_wait_for_ever() -> None:
    call = ClientCall("ping", RequestParams(), Result, inf, inf)
    call.sent.append(PendingRequest(1, "ping", None, inf, inf, inf, inf))
    assert call.deadlines(100.0) == (inf, inf)
