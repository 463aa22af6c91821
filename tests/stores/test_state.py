"""State by owner: bounded, in memory in total as well, and gone when it was idle."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcpearl import LimitReached
from mcpearl.stores.memory_state import MemoryStateStore
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_state import RedisStateStore
from mcpearl.stores.state import StateStore
from tests.redis_server import fresh_address

KINDS = pytest.mark.parametrize("kind", ["memory", "redis", "valkey"])


@asynccontextmanager
async def a_store(kind: str, max_owner: int = 1024 * 1024) -> AsyncIterator[StateStore]:
    if kind == "memory":
        yield MemoryStateStore(max_owner=max_owner)
        return
    link = RedisLink(parse(fresh_address(kind)))
    await link.start()
    yield RedisStateStore(link, max_owner)
    async for key in link._client.scan_iter(f"*{link.prefix}*"):  # type: ignore[union-attr]
        assert await link.send("PTTL", key) > 0
    await link.close()


@KINDS
async def test_values_belong_to_their_owner(kind: str):
    async with a_store(kind) as store:
        await values_belong_to_their_owner(store)
    assert kind != "memory" or len(store) == 0


async def values_belong_to_their_owner(store: StateStore) -> None:
    await store.set("a", "x", b"1")
    await store.set("b", "x", b"2")
    assert (await store.get("a", "x"), await store.get("b", "x")) == (b"1", b"2")
    assert await store.get("c", "x") is None
    assert await store.keys("a") == ["x"]
    await store.clear("a")
    assert await store.keys("a") == []
    assert await store.delete("b", "x")
    assert not await store.delete("b", "x")


@KINDS
async def test_an_owner_may_hold_so_much(kind: str):
    async with a_store(kind, 1000) as store:
        await an_owner_may_hold_so_much(store)


async def an_owner_may_hold_so_much(store: StateStore) -> None:
    await store.set("a", "x", b"1" * 800)
    with pytest.raises(LimitReached, match="over the 1000 "):
        await store.set("a", "y", b"1" * 200)
    await store.set("a", "x", b"1")  # smaller, in its place
    await store.set("a", "y", b"1" * 200)
    await store.set("b", "y", b"1" * 800)


@KINDS
async def test_keys_count_too(kind: str):
    async with a_store(kind, 1000) as store:
        with pytest.raises(LimitReached):
            for number in range(100):
                await store.set("a", f"{number}", b"")


async def test_in_total_the_owner_used_longest_ago_goes():
    store = MemoryStateStore(max_owner=500, max_total=1000)
    for owner in ("a", "b"):
        await store.set(owner, "x", b"1" * 300)
    assert await store.get("a", "x") is not None
    await store.set("c", "x", b"1" * 300)
    assert await store.get("b", "x") is None
    assert await store.get("a", "x") is not None
    assert await store.get("c", "x") is not None


async def test_what_is_idle_is_gone(clock):
    store = MemoryStateStore(idle_timeout=60)
    await store.set("a", "x", b"1")
    clock.advance(50)
    assert await store.get("a", "x") == b"1"
    clock.advance(50)
    assert await store.get("a", "x") == b"1"
    await store.set("b", "x", b"1")
    clock.advance(61)
    assert await store.get("b", "x") is None
    assert len(store) == 0
