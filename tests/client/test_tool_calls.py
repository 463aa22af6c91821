"""Results of tools are checked against their output schemas, within the time of the call."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, InvalidResult, McpError, Server
from mcpearl.client import tool_calls
from mcpearl.runtime.backoff import Backoff
from mcpearl.testing.clock import MovableClock
from mcpearl.types.jsonrpc import HEADER_MISMATCH
from tests.waiting import eventually, turns

from ..transports.http_peer import Request, http_peer, modern
from .peers import Error, Message, Peer, Script, client_of, legacy_peer, modern_peer

INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def a_peer(schema: Any, result: Message) -> Peer:
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    if schema is not None:
        tool["outputSchema"] = schema
    return modern_peer(
        tools_list=lambda _: {"tools": [tool]}, tools_call=lambda _: {"content": [], **result}
    )


async def outcome(schema: Any, result: Message, **options: Any) -> Any:
    async with await client_of(a_peer(schema, result), **options) as client:
        return (await client.call_tool("t")).structured_content


async def test_content_that_fits_its_schema_is_returned_unchanged() -> None:
    assert await outcome(INTEGER, {"structuredContent": {"n": 1, "more": [1.5]}}) == {
        "n": 1,
        "more": [1.5],
    }


@pytest.mark.parametrize("content", [{"n": "one"}, {}, [], None, 7, {"n": 1.5}])
async def test_content_that_breaks_its_schema_is_refused(content: Any) -> None:
    with pytest.raises(InvalidResult, match="`t`"):
        await outcome(INTEGER, {"structuredContent": content})


async def test_missing_content_breaks_a_schema_too() -> None:
    with pytest.raises(InvalidResult, match="no structured content"):
        await outcome(INTEGER, {})


async def test_the_result_of_a_failed_tool_is_not_checked() -> None:
    await outcome(INTEGER, {"isError": True})


async def test_a_tool_without_a_schema_may_return_anything() -> None:
    assert await outcome(None, {"structuredContent": [1, "x"]}) == [1, "x"]


async def test_validation_can_be_turned_off() -> None:
    peer = a_peer(INTEGER, {"structuredContent": {"n": "one"}})
    async with await client_of(peer, validate_output=False) as client:
        await client.call_tool("t")
    assert not peer.asked("tools/list")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/missing"},
        {"type": "object", "properties": {"n": {"pattern": "("}}},
        {"$schema": "https://example.com/my-dialect"},
    ],
)
async def test_a_schema_that_cannot_be_used_is_a_clear_error(schema: Any) -> None:
    with pytest.raises(InvalidResult, match="unusable schema"):
        await outcome(schema, {"structuredContent": {"n": 1}})


async def test_a_schema_nested_deeper_than_its_bound_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):  # two levels each: within the bound of JSON, over that of schemas
        schema = {"properties": {"n": schema}}
    with pytest.raises(InvalidResult):
        await outcome(schema, {"structuredContent": {"n": 1}})


async def test_the_tools_are_listed_once_however_many_calls_begin_together() -> None:
    peer = a_peer(INTEGER, {"structuredContent": {"n": 1}})
    listed = peer.answers["tools/list"]

    def later(message: Message) -> None:
        def answer() -> None:
            peer.send(id=message["id"], result=listed(message))

        asyncio.get_running_loop().call_later(0.02, answer)

    peer["tools/list"] = later
    async with await client_of(peer) as client:
        await asyncio.gather(*(client.call_tool("t") for _ in range(50)))
        await client.call_tool("t")
    assert len(peer.asked("tools/list")) == 1


async def test_a_changed_list_is_learned_again() -> None:
    peer = a_peer(None, {"structuredContent": {"n": "one"}})
    async with await client_of(peer) as client:
        await client.call_tool("t")
        listed = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": INTEGER}
        peer["tools/list"] = lambda _: {"tools": [listed]}
        peer.send(method="notifications/tools/list_changed")
        with pytest.raises(InvalidResult):
            await client.call_tool("t")


async def test_a_list_that_changes_while_it_is_read_is_read_again() -> None:
    peer = a_peer(INTEGER, {"structuredContent": {"n": "one"}})
    tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": INTEGER}
    listed = {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

    def change(message: Message) -> None:
        peer["tools/list"] = lambda _: {"tools": [tool]}
        peer.send(id=message["id"], result=listed)
        peer.send(method="notifications/tools/list_changed")

    peer["tools/list"] = change
    async with await client_of(peer) as client:
        with pytest.raises(InvalidResult):
            await client.call_tool("t")
    assert len(peer.asked("tools/list")) == 2


async def test_a_list_that_fails_costs_the_check_and_not_the_call() -> None:
    peer = a_peer(INTEGER, {"structuredContent": {"n": 1}})
    peer["tools/list"] = lambda _: Error(-32603, "broken")
    async with await client_of(peer) as client:
        assert (await client.call_tool("t")).structured_content == {"n": 1}
        assert (await client.call_tool("t")).structured_content == {"n": 1}
    assert len(peer.asked("tools/list")) == 1


async def test_a_connection_lost_while_listing_costs_the_check_only() -> None:
    peer = a_peer(INTEGER, {"structuredContent": {"n": 1}})
    closing: list[Any] = []
    peer["tools/list"] = lambda _: closing.append(asyncio.ensure_future(peer.close()))
    async with await client_of(peer) as client:
        assert (await client.call_tool("t")).structured_content == {"n": 1}


async def test_the_result_of_a_tool_that_is_not_listed_is_not_checked() -> None:
    peer = a_peer(INTEGER, {"structuredContent": {"n": "hidden"}})
    async with await client_of(peer) as client:
        await client.call_tool("hidden")
        await client.call_tool("hidden")
    assert len(peer.asked("tools/list")) == 1


async def test_a_tool_that_is_listed_later_than_it_is_called_is_learned(
    clock: MovableClock,
) -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": INTEGER}
    listed: list[Message] = []
    peer = modern_peer(
        tools_list=lambda _: {"tools": list(listed)},
        tools_call=lambda _: {"content": [], "structuredContent": {"n": "one"}},
    )
    async with await client_of(peer) as client:
        await client.call_tool("t")
        listed.append(tool)
        await client.call_tool("t")
        assert len(peer.asked("tools/list")) == 1, "it is not listed again at once"
        await clock.advance(10)
        with pytest.raises(InvalidResult):
            await client.call_tool("t")
        assert len(peer.asked("tools/list")) == 2


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_with_a_server_of_this_package(protocol: str) -> None:
    app = Server("outputs", page_size=1)

    @app.tool
    async def one() -> int:
        return 1

    @app.tool
    async def names() -> dict[str, int]:
        return {"a": 1}

    async with Client(app, protocol=protocol) as client:
        assert (await client.call_tool("names")).structured_content == {"a": 1}
        assert (await client.call_tool("one")).structured_content == {"result": 1}


# The list of the tools gets what is left of the call's time

RESULT = {"content": [{"type": "text", "text": "done"}]}
HANGS = 60  # seconds after which a test has failed


@pytest.mark.parametrize("peer_of", [modern_peer, legacy_peer])
async def test_a_list_that_is_never_answered_costs_the_check_and_not_the_call(
    peer_of: Any, caplog: pytest.LogCaptureFixture, clock: MovableClock
) -> None:
    peer = peer_of(tools_call=lambda _: RESULT, tools_list=lambda _: None)
    async with asyncio.timeout(HANGS), await client_of(peer, timeout=HANGS) as client:
        calling = asyncio.ensure_future(client.call_tool("t", timeout=20))
        await eventually(lambda: peer.asked("tools/call") and peer.asked("tools/list"))
        await clock.advance(20)
        assert (await calling).content[0].text == "done"
        assert "t is not checked" in caplog.text
        await eventually(lambda: peer.asked("notifications/cancelled"))
        await client.call_tool("t", timeout=HANGS)  # does not wait for another list
    assert len(peer.asked("tools/list")) == 1


async def test_a_list_that_is_never_answered_on_stdio(tmp_path: Path) -> None:
    body = f"""
    welcome()
    for message in messages():
        if message.get("method") == "tools/call":
            answer(message, {RESULT!r})
    """
    server = Script(tmp_path, body)
    async with asyncio.timeout(HANGS), Client(server.path, timeout=HANGS) as client:
        assert (await client.call_tool("t", timeout=0.3)).content[0].text == "done"
        await eventually(lambda: "notifications/cancelled" in server.methods())


async def test_a_list_that_is_never_answered_over_http(clock: MovableClock) -> None:
    async with asyncio.timeout(HANGS), http_peer() as peer:
        modern(peer)

        @peer.on("tools/call")
        async def call(request: Request) -> None:
            await request.result(RESULT)

        @peer.on("tools/list")
        async def hang(request: Request) -> None:
            await asyncio.Event().wait()

        async with Client(peer.url, timeout=HANGS) as client:
            calling = asyncio.ensure_future(client.call_tool("t", timeout=20))
            await eventually(lambda: peer.asked("tools/call") and peer.asked("tools/list"))
            await turns()
            await clock.advance(20)
            assert (await calling).content[0].text == "done"
        assert len(peer.asked("tools/list")) == 1


async def test_a_call_does_not_wait_longer_for_the_list_of_another_call(
    clock: MovableClock,
) -> None:
    peer = modern_peer(tools_call=lambda _: RESULT, tools_list=lambda _: None)
    async with asyncio.timeout(HANGS), await client_of(peer) as client:
        patient = asyncio.ensure_future(client.call_tool("t", timeout=HANGS))
        await eventually(lambda: peer.asked("tools/list"))
        hasty = asyncio.ensure_future(client.call_tool("t", timeout=20))
        await eventually(lambda: len(peer.asked("tools/call")) == 2)
        await clock.advance(20)
        await hasty
        assert not patient.done()
        patient.cancel()


def endless(message: Message) -> Message:
    """A page of one tool, and always another page after it."""
    number = message["id"]
    tool = {"name": f"t{number}", "inputSchema": {"type": "object"}}
    return {"tools": [tool], "nextCursor": f"c{number}"}


async def test_a_list_without_end_ends_with_the_call_and_is_not_begun_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
    clock: MovableClock,
) -> None:
    monkeypatch.setattr(tool_calls, "_AFTER_FAILURE", Backoff(delays=(3600.0,)))
    peer = modern_peer(tools_call=lambda _: RESULT, tools_list=endless)
    async with asyncio.timeout(HANGS), await client_of(peer) as client:
        calling = asyncio.ensure_future(client.call_tool("t", timeout=20))
        await eventually(lambda: peer.asked("tools/call") and len(peer.asked("tools/list")) > 1)
        await clock.advance(20)
        await calling
        asked = len(peer.asked("tools/list"))
        assert 1 < asked <= tool_calls.MAX_PAGES
        for _ in range(10):
            await client.call_tool("t", timeout=20)
        assert len(peer.asked("tools/list")) == asked


@pytest.mark.parametrize(("bound", "value"), [("MAX_TOOLS", 50), ("MAX_BYTES", 3000)])
async def test_a_list_without_end_ends_at_its_bounds(
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tool_calls, bound, value)
    peer = modern_peer(tools_call=lambda _: RESULT, tools_list=endless)
    async with await client_of(peer) as client:
        await client.call_tool("t")
    assert 10 <= len(peer.asked("tools/list")) <= 70
    assert "the list goes on" in caplog.text


async def test_a_list_the_application_asked_for_has_no_such_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_calls, "MAX_TOOLS", 5)
    app = Server("many", page_size=2)
    for number in range(20):
        app.add_tool(lambda: 1, name=f"t{number}")
    async with Client(app) as client:
        assert len([tool async for tool in client.tools()]) == 20


# A server that announces changes all the time


async def test_a_storm_of_changes_is_listed_after_at_a_bounded_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        tool_calls, "_AFTER_LISTING", Backoff(delays=(0.0, 0.0, 3600.0), settled_after=3600)
    )
    peer = modern_peer(tools_list=lambda _: {"tools": []})

    def change(message: Message) -> Message:
        peer.send(method="notifications/tools/list_changed")
        return RESULT

    peer["tools/call"] = change
    async with await client_of(peer) as client:
        for _ in range(100):
            await client.call_tool("t")
    assert len(peer.asked("tools/list")) == 3


async def test_announced_changes_make_a_client_ask_nothing_by_itself() -> None:
    peer = modern_peer(tools_call=lambda _: RESULT, tools_list=lambda _: {"tools": []})
    async with await client_of(peer, validate_output=False) as client:
        for kind in ("tools", "prompts", "resources"):
            for _ in range(2000):
                peer.send(method=f"notifications/{kind}/list_changed")
        await client.call_tool("t")
    assert [m["method"] for m in peer.received] == ["server/discover", "tools/call"]


# Headers that no longer fit


async def test_a_refused_header_has_the_tools_listed_and_the_call_sent_again() -> None:
    peer = modern_peer(tools_list=lambda _: {"tools": []})
    peer["tools/call"] = lambda _: (
        RESULT if peer.asked("tools/list") else Error(HEADER_MISMATCH, "other headers")
    )
    async with await client_of(peer) as client:
        assert (await client.call_tool("t")).content[0].text == "done"
    assert len(peer.asked("tools/call")) == 2


async def test_a_server_that_refuses_headers_for_ever_is_called_twice() -> None:
    peer = modern_peer(
        tools_list=lambda _: {"tools": []},
        tools_call=lambda _: Error(HEADER_MISMATCH, "other headers"),
    )
    async with await client_of(peer) as client:
        with pytest.raises(McpError, match="other headers"):
            await client.call_tool("t")
    assert len(peer.asked("tools/call")) == 2


async def test_listing_after_a_refused_header_ends_with_the_call() -> None:
    peer = modern_peer(
        tools_list=lambda _: None, tools_call=lambda _: Error(HEADER_MISMATCH, "other headers")
    )
    async with asyncio.timeout(HANGS), await client_of(peer, timeout=HANGS) as client:
        with pytest.raises(McpError, match="other headers"):
            await client.call_tool("t", timeout=0.1)
    assert len(peer.asked("tools/call")) == 1
