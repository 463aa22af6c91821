"""Session records, in every store that keeps them."""

import asyncio
import string
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mcpearl.protocol.snapshot import EndSnapshot
from mcpearl.stores.memory_sessions import MemorySessionStore
from mcpearl.stores.sessions import SessionRecord, SessionStore
from mcpearl.types.base import Implementation
from mcpearl.types.capabilities import ClientCapabilities, ElicitationCapability
from tests.stores.suite import SESSION_STORES, StillClock

TTL = 100.0


@pytest.fixture(params=SESSION_STORES)
async def store(request: Any, clock: StillClock) -> AsyncIterator[SessionStore]:
    async with SESSION_STORES[request.param]() as made:
        yield made


def make_record(id: str, **more: Any) -> SessionRecord:
    state = EndSnapshot(
        "2025-11-25",
        Implementation(name="test", version="1", title="Test"),
        ClientCapabilities(elicitation=ElicitationCapability(), experimental={"x": {"y": 1}}),
        "warning",
        ready=False,
    )
    return SessionRecord(id=id, identity=("issuer", "ann", None), state=state, **more)


async def loaded(store: SessionStore, id: str) -> SessionRecord | None:
    """Return the record of a session without the time at which it was saved."""
    found = await store.load(id)
    return None if found is None else replace(found, since=0.0)


def new(store: SessionStore, **more: Any) -> SessionRecord:
    """Make the first record of a session."""
    return make_record(store.new_id(make_record("")), **more)


async def test_what_was_saved_is_loaded(store: SessionStore) -> None:
    record = new(store, uris=("a://b", "c://d"))
    assert await store.save(record, TTL)
    assert await loaded(store, record.id) == record
    assert await store.load("other") is None


def test_a_record_survives_being_written_and_read() -> None:
    record = make_record("one", uris=("a://b",))
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(record), type=SessionRecord) == record


async def test_a_record_is_written_by_the_one_that_saw_the_latest(store: SessionStore) -> None:
    record = new(store)
    assert await store.save(record, TTL)
    assert not await store.save(record, TTL)
    following = replace(record, revision=2, uris=("a://b",))
    assert await store.save(following, TTL)
    assert not await store.save(replace(record, revision=2), TTL)
    assert not await store.save(replace(record, revision=4), TTL)
    assert await loaded(store, record.id) == following


async def test_of_many_writers_at_once_one_wins(store: SessionStore) -> None:
    first = new(store)
    await store.save(first, TTL)
    versions = [replace(first, revision=2, uris=(f"a://{n}",)) for n in range(20)]
    results = await asyncio.gather(*(store.save(version, TTL) for version in versions))
    assert results.count(True) == 1
    assert await loaded(store, first.id) == versions[results.index(True)]


async def test_a_record_expires_unless_it_is_touched(
    store: SessionStore, clock: StillClock
) -> None:
    one, two = new(store), new(store)
    for each in (one, two):
        await store.save(each, TTL)
    clock.advance(TTL)  # a store may know by the id alone that a session has just begun
    assert not await store.touch(two.id, TTL)
    for each in (one, two):
        await store.save(each, TTL)
    clock.advance(TTL * 0.75)
    assert await store.touch(one.id, TTL)
    clock.advance(TTL * 0.75)
    assert await store.load(one.id) is not None
    assert await store.load(two.id) is None
    assert not await store.touch(two.id, TTL)
    assert not await store.save(replace(two, revision=2), TTL)
    assert await store.save(two, TTL)


async def test_saving_moves_the_expiry(store: SessionStore, clock: StillClock) -> None:
    first = new(store)
    await store.save(first, TTL)
    clock.advance(TTL * 0.75)
    await store.save(replace(first, revision=2), TTL)
    clock.advance(TTL * 0.75)
    assert await store.load(first.id) is not None


async def test_a_deleted_session_is_not_written_again(store: SessionStore) -> None:
    first = new(store)
    await store.save(first, TTL)
    await store.delete(first.id)
    await store.delete(first.id)
    assert await store.load(first.id) is None
    assert not await store.touch(first.id, TTL)
    assert not await store.save(replace(first, revision=2), TTL)


async def test_ids_are_visible_ascii_and_never_repeat(store: SessionStore) -> None:
    made = {store.new_id(make_record("")) for _ in range(1000)}
    assert len(made) == 1000
    visible = set(string.ascii_letters + string.digits + string.punctuation)
    assert all(len(id) >= 32 and set(id) <= visible for id in made)


async def test_expired_records_do_not_pile_up(clock: StillClock) -> None:
    store = MemorySessionStore()
    for number in range(100):
        await store.save(make_record(f"{number}"), TTL)
    clock.advance(TTL * 2)
    await store.save(make_record("last"), TTL)
    assert len(store) == 1
