"""Keeping results as long as a server says, for whom it says, and not when it may be stale."""

import asyncio
from typing import Any

import pytest

from mcpearl import Client, McpError, Server
from mcpearl.client.cache import ResponseCache
from mcpearl.types import ListToolsResult, ReadResourceResult
from tests.waiting import eventually

from .peers import Error, Message, Peer, client_of, modern_peer


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def tools(ttl_ms: Any, scope: str = "private", **more: Any) -> Message:
    return {"resultType": "complete", "tools": [], "ttlMs": ttl_ms, "cacheScope": scope, **more}


def contents(ttl_ms: Any, scope: str = "private") -> Message:
    return {"contents": [{"uri": "x://", "text": "t"}], "ttlMs": ttl_ms, "cacheScope": scope}


def lists(peer: Peer) -> int:
    return len(peer.asked("tools/list"))


async def test_a_result_is_kept_as_long_as_it_says() -> None:
    clock = Clock()
    peer = modern_peer(tools_list=lambda _: tools(5000))
    async with await client_of(peer, cache=ResponseCache(clock=clock)) as client:
        first = await client.list_tools()
        clock.now += 4.999
        assert await client.list_tools() is first
        clock.now += 0.001
        await client.list_tools()
    assert lists(peer) == 2


@pytest.mark.parametrize("ttl_ms", [0, -1, -(10**30), None])
async def test_results_without_time_to_live_are_not_kept(ttl_ms: Any) -> None:
    peer = modern_peer(tools_list=lambda _: tools(ttl_ms))
    cache = ResponseCache()
    async with await client_of(peer, cache=cache) as client:
        await client.list_tools()
        await client.list_tools()
    assert (lists(peer), len(cache)) == (2, 0)


@pytest.mark.parametrize("ttl_ms", [10**15, 2**63, 10**400])
async def test_an_absurd_time_to_live_does_no_harm(ttl_ms: int) -> None:
    peer = modern_peer(tools_list=lambda _: tools(ttl_ms))
    async with await client_of(peer) as client:
        await client.list_tools()
        await client.list_tools()
    assert lists(peer) == 1


async def test_each_page_and_each_uri_is_kept_for_itself() -> None:
    peer = modern_peer(resources_read=lambda m: contents(60_000))
    peer["tools/list"] = lambda m: tools(
        60_000, **({} if "cursor" in m["params"] else {"nextCursor": "two"})
    )
    async with await client_of(peer) as client:
        for _ in range(3):
            assert [t async for t in client.tools()] == []
            await client.read_resource("x://one")
            await client.read_resource("x://two")
    assert lists(peer) == 2
    read = [m["params"]["uri"] for m in peer.asked("resources/read")]
    assert read == ["x://one", "x://two"]


async def test_calls_and_prompts_are_never_kept() -> None:
    hints = {"ttlMs": 60_000, "cacheScope": "public"}
    peer = modern_peer(
        tools_call=lambda _: {"content": [], **hints},
        prompts_get=lambda _: {"messages": [], **hints},
    )
    async with await client_of(peer, validate_output=False) as client:
        for _ in range(2):
            await client.call_tool("t")
            await client.get_prompt("p")
    assert len(peer.asked("tools/call")) == len(peer.asked("prompts/get")) == 2


async def test_what_took_rounds_of_questions_is_never_kept() -> None:
    ask = {
        "resultType": "input_required",
        "requestState": "s",
        "inputRequests": {"a": {"method": "roots/list"}},
    }
    peer = modern_peer()
    peer["resources/read"] = lambda m: (
        contents(60_000, "public") if "requestState" in m["params"] else ask
    )
    cache = ResponseCache()
    async with await client_of(peer, cache=cache, roots=[]) as client:
        await client.read_resource("x://")
        assert len(cache) == 0
        await client.read_resource("x://")
    assert len(peer.asked("resources/read")) == 4


CHANGES = [
    ("notifications/tools/list_changed", "tools/list"),
    ("notifications/prompts/list_changed", "prompts/list"),
    ("notifications/resources/list_changed", "resources/list"),
    ("notifications/resources/list_changed", "resources/templates/list"),
]


@pytest.mark.parametrize(("notification", "method"), CHANGES)
async def test_a_change_that_is_announced_makes_its_list_stale(
    notification: str, method: str
) -> None:
    hints = {"ttlMs": 60_000, "cacheScope": "public"}
    every = {"tools": [], "prompts": [], "resources": [], "resourceTemplates": []}
    peer = modern_peer()
    asks = {
        "tools/list": lambda c: c.list_tools(),
        "prompts/list": lambda c: c.list_prompts(),
        "resources/list": lambda c: c.list_resources(),
        "resources/templates/list": lambda c: c.list_resource_templates(),
    }
    for name in asks:
        peer[name] = lambda _: {**every, **hints}
    async with await client_of(peer) as client:
        for ask in asks.values():
            await ask(client)
        peer.send(method=notification)
        for ask in asks.values():
            await ask(client)
    stale = {each for told, each in CHANGES if told == notification}
    assert method in stale
    assert {name for name in asks if len(peer.asked(name)) == 2} == stale


async def test_an_update_makes_one_resource_stale() -> None:
    peer = modern_peer(resources_read=lambda _: contents(60_000))
    async with await client_of(peer) as client:
        for uri in ("x://one", "x://two"):
            await client.read_resource(uri)
        peer.send(method="notifications/resources/updated", params={"uri": "x://one"})
        for uri in ("x://one", "x://two"):
            await client.read_resource(uri)
    assert [m["params"]["uri"] for m in peer.asked("resources/read")] == [
        "x://one",
        "x://two",
        "x://one",
    ]


async def test_a_slow_callback_does_not_keep_stale_results_alive() -> None:
    async def slow(notice: Any) -> None:
        await asyncio.sleep(3600)

    peer = modern_peer(tools_list=lambda _: tools(60_000))
    async with await client_of(peer, on_notification=slow) as client:
        for _ in range(3):
            await client.list_tools()
            peer.send(method="notifications/tools/list_changed")
    assert lists(peer) == 3


async def test_a_result_that_became_stale_on_its_way_is_not_kept() -> None:
    peer = modern_peer()

    def change_first(message: Message) -> Message:
        if lists(peer) == 1:
            peer.send(method="notifications/tools/list_changed")
        return tools(60_000)

    peer["tools/list"] = change_first
    async with await client_of(peer) as client:
        for _ in range(3):
            await client.list_tools()
    assert lists(peer) == 2


async def test_a_cursor_that_is_refused_drops_the_pages_of_its_list() -> None:
    peer = modern_peer(prompts_list=lambda _: {"prompts": [], "ttlMs": 60_000})
    peer["tools/list"] = lambda m: (
        Error(-32602, "old cursor") if "cursor" in m["params"] else tools(60_000, nextCursor="c")
    )
    async with await client_of(peer) as client:
        await client.list_prompts()
        page = await client.list_tools()
        with pytest.raises(McpError, match="old cursor"):
            await client.list_tools(page.next_cursor)
        await client.list_tools()
        await client.list_prompts()
    assert lists(peer) == 3
    assert len(peer.asked("prompts/list")) == 1


# A cache that is shared


async def shared_reads(scope: str) -> int:
    """How often two clients of one server read, sharing a cache."""
    app = Server("shared")
    reads: list[int] = []

    @app.resource("x://", ttl_ms=60_000, cache_scope=scope)  # type: ignore[arg-type]
    async def read() -> str:
        reads.append(1)
        return "t"

    cache = ResponseCache()
    async with Client(app, cache=cache) as one, Client(app, cache=cache) as other:
        for client in (one, other, one, other):
            await client.read_resource("x://")
    return len(reads)


async def test_public_results_cross_between_clients_and_private_ones_do_not() -> None:
    assert await shared_reads("public") == 1
    assert await shared_reads("private") == 2


async def test_without_sharing_nothing_crosses() -> None:
    app = Server("apart", list_ttl_ms=60_000)
    app.add_tool(lambda: 1, name="t")
    async with Client(app) as one, Client(app) as other:
        assert await one.list_tools() is not await other.list_tools()


async def test_results_never_cross_between_servers_even_of_the_same_name() -> None:
    cache = ResponseCache()
    names = []
    for tool in ("first", "second"):
        app = Server("twin", list_ttl_ms=60_000)
        app.add_tool(lambda: 1, name=tool)
        async with Client(app, cache=cache) as client:
            names.append((await client.list_tools()).tools[0].name)
    for tool in ("third", "fourth"):
        peer = modern_peer()
        listed = {"name": tool, "inputSchema": {"type": "object"}}
        peer["tools/list"] = lambda _, listed=listed: tools(60_000, "public") | {"tools": [listed]}
        async with await client_of(peer, cache=cache) as client:
            names.append((await client.list_tools()).tools[0].name)
    assert names == ["first", "second", "third", "fourth"]


async def test_a_change_on_one_server_leaves_the_results_of_others() -> None:
    cache = ResponseCache()
    one = modern_peer(tools_list=lambda _: tools(60_000, "public"))
    other = modern_peer(tools_list=lambda _: tools(60_000, "public"))
    async with await client_of(one, cache=cache) as a, await client_of(other, cache=cache) as b:
        await a.list_tools()
        await b.list_tools()
        one.send(method="notifications/tools/list_changed")
        await a.list_tools()
        await b.list_tools()
    assert (lists(one), lists(other)) == (2, 1)


# The cache itself


def test_the_least_recently_used_goes_first() -> None:
    cache = ResponseCache(max_entries=2)
    result = ReadResourceResult(contents=[], ttl_ms=1000)
    cache.put("s", "resources/read", "a", "me", result)
    cache.put("s", "resources/read", "b", "me", result)
    assert cache.get("s", "resources/read", "a", "me") is result
    cache.put("s", "resources/read", "c", "me", result)
    kept = [uri for uri in "abc" if cache.get("s", "resources/read", uri, "me")]
    assert (kept, len(cache)) == (["a", "c"], 2)


def test_a_result_that_is_put_again_is_as_new() -> None:
    cache = ResponseCache(max_entries=2)
    result = ReadResourceResult(contents=[], ttl_ms=1000)
    for uri in "abac":
        cache.put("s", "resources/read", uri, "me", result)
    assert [uri for uri in "abc" if cache.get("s", "resources/read", uri, "me")] == ["a", "c"]


async def test_a_client_that_reads_without_end_keeps_a_bounded_number() -> None:
    cache = ResponseCache(max_entries=10)
    peer = modern_peer(resources_read=lambda _: contents(60_000))
    async with await client_of(peer, cache=cache) as client:
        for number in range(100):
            await client.read_resource(f"x://{number}")
    assert len(cache) == 10


def test_everything_can_be_dropped() -> None:
    cache = ResponseCache()
    cache.put("s", "tools/list", "", "me", ListToolsResult(tools=[], ttl_ms=1000))
    cache.clear()
    assert len(cache) == 0


async def test_with_a_server_of_this_package() -> None:
    app = Server("kept", list_ttl_ms=60_000)
    app.add_tool(lambda: 1, name="one")
    async with Client(app) as client, client.listen(tools=True):
        assert len((await client.list_tools()).tools) == 1
        app.add_tool(lambda: 2, name="two")
        await eventually(lambda: not len(client._cache._cache))
        assert len((await client.list_tools()).tools) == 2
