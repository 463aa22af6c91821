"""State in memory: kept by owner, bounded per owner and in total, gone when it was idle."""

import pytest

from mcpearl import LimitReached
from mcpearl.stores.memory_state import MemoryStateStore


async def test_values_belong_to_their_owner():
    store = MemoryStateStore()
    await store.set("a", "x", b"1")
    await store.set("b", "x", b"2")
    assert (await store.get("a", "x"), await store.get("b", "x")) == (b"1", b"2")
    assert await store.get("c", "x") is None
    assert await store.keys("a") == ["x"]
    await store.clear("a")
    assert await store.keys("a") == []
    assert await store.delete("b", "x")
    assert not await store.delete("b", "x")
    assert len(store) == 0


async def test_an_owner_may_hold_so_much():
    store = MemoryStateStore(max_owner=1000)
    await store.set("a", "x", b"1" * 800)
    with pytest.raises(LimitReached, match="over the 1000 of"):
        await store.set("a", "y", b"1" * 200)
    await store.set("a", "x", b"1")  # smaller, in its place
    await store.set("a", "y", b"1" * 200)
    await store.set("b", "y", b"1" * 800)


async def test_keys_count_too():
    store = MemoryStateStore(max_owner=1000)
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
