"""Structured content is checked against what its tool promised."""

import asyncio
from typing import Any

import pytest

from mcpearl import Client, InvalidResult, Server

from .peers import Error, Message, Peer, client_of, modern_peer

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


async def test_content_that_fits_is_given_as_it_is() -> None:
    assert await outcome(INTEGER, {"structuredContent": {"n": 1, "more": [1.5]}}) == {
        "n": 1,
        "more": [1.5],
    }


@pytest.mark.parametrize("content", [{"n": "one"}, {}, [], None, 7, {"n": 1.5}])
async def test_content_that_breaks_the_promise_is_refused(content: Any) -> None:
    with pytest.raises(InvalidResult, match="`t`"):
        await outcome(INTEGER, {"structuredContent": content})


async def test_no_content_breaks_the_promise_too() -> None:
    with pytest.raises(InvalidResult, match="no structured content"):
        await outcome(INTEGER, {})


async def test_a_tool_that_failed_promised_nothing() -> None:
    await outcome(INTEGER, {"isError": True})


async def test_a_tool_without_a_schema_may_give_anything() -> None:
    assert await outcome(None, {"structuredContent": [1, "x"]}) == [1, "x"]


async def test_the_check_can_be_left_out() -> None:
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


async def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
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


async def test_a_tool_that_is_not_listed_promised_nothing() -> None:
    peer = a_peer(INTEGER, {"structuredContent": {"n": "hidden"}})
    async with await client_of(peer) as client:
        await client.call_tool("hidden")
        await client.call_tool("hidden")
    assert len(peer.asked("tools/list")) == 1


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
