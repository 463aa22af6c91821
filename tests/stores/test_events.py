"""Events of resumable streams, in every store that keeps them, and the bounds of the one in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl.stores.events import EventsLost, EventStore
from mcpearl.stores.memory_events import (
    EVENT_SIZE,
    MAX_ENDED,
    MAX_EVENTS,
    MAX_READ,
    MemoryEventStore,
)
from tests.stores.suite import EVENT_STORES
from tests.waiting import eventually


class Listener:
    """A follower that notes what it hears."""

    def __init__(self) -> None:
        self.heard_events: list[tuple[int, bytes]] = []
        self.is_over = False

    def heard(self, number: int, message: bytes) -> None:
        self.heard_events.append((number, message))

    def over(self) -> None:
        self.is_over = True


@pytest.fixture(params=EVENT_STORES)
async def store(request: Any) -> AsyncIterator[EventStore]:
    async with EVENT_STORES[request.param]() as made:
        yield made


async def append(store: EventStore, *messages: bytes, stream: str = "s") -> None:
    for message in messages:
        store.append("one", stream, message)
    await store.stored("one", stream)


async def test_events_are_numbered_and_resumed_after_any_of_them(store: EventStore) -> None:
    await append(store, b"a", b"b", b"c")
    everything = [(1, b"a"), (2, b"b"), (3, b"c")]
    for number in (1, 2, 3):
        found = await store.after("one", "s", number)
        assert (found.events, found.last, found.ended) == (everything[number:], 3, False)


async def test_positions_a_stream_does_not_have(store: EventStore) -> None:
    await append(store, b"a")
    for session, stream, number in (
        *(("one", "s", 0), ("one", "s", 2), ("one", "s", -1), ("one", "s", 2**60)),
        *(("one", "t", 1), ("two", "s", 1)),
    ):
        with pytest.raises(EventsLost):
            await store.after(session, stream, number)


async def test_without_a_position_a_reader_gets_what_was_not_read(store: EventStore) -> None:
    await append(store, b"a", b"b", b"c")
    store.mark_read("one", "s", 2)
    assert (await store.after("one", "s", None)).events == [(3, b"c")]
    store.mark_read("one", "s", 1)  # an older reader is late to say so
    assert (await store.after("one", "s", None)).events == [(3, b"c")]
    assert (await store.after("one", "s", 1)).events == [(2, b"b"), (3, b"c")]


async def test_a_follower_hears_events_in_order_and_the_end(store: EventStore) -> None:
    await append(store, b"before")
    listener, other = Listener(), Listener()
    store.follow("one", "s", listener)
    store.follow("one", "t", other)
    await append(store, b"a", b"b")
    store.end("one", "s")
    await store.stored("one", "s")
    await eventually(lambda: listener.is_over)
    assert listener.heard_events == [(2, b"a"), (3, b"b")]
    assert other.heard_events == [] and not other.is_over


async def test_a_follower_that_left_hears_nothing(store: EventStore) -> None:
    listener, stays = Listener(), Listener()
    store.follow("one", "s", listener)
    store.follow("one", "s", stays)
    store.unfollow("one", "s", listener)
    store.unfollow("two", "s", listener)
    await append(store, b"a")
    await eventually(lambda: stays.heard_events == [(1, b"a")])
    assert listener.heard_events == []


async def test_an_ended_stream_takes_nothing_more_and_is_read_as_ended(store: EventStore) -> None:
    await append(store, b"a", b"b")
    store.end("one", "s")
    store.end("one", "s")
    await append(store, b"late")
    found = await store.after("one", "s", 1)
    assert (found.events, found.last, found.ended) == ([(2, b"b")], 2, True)


async def test_a_forgotten_session_has_no_streams(store: EventStore) -> None:
    await append(store, b"a")
    store.append("two", "s", b"a")
    await store.stored("two", "s")
    store.forget("one")
    store.forget("one")
    with pytest.raises(EventsLost):
        await store.after("one", "s", 1)
    assert (await store.after("two", "s", None)).events == [(1, b"a")]


# The bounds of the store in memory


async def test_a_stream_keeps_its_newest_events() -> None:
    store = MemoryEventStore()
    await append(store, *[b"x"] * (MAX_EVENTS + 10))
    assert len((await store.after("one", "s", None)).events) == MAX_EVENTS
    assert (await store.after("one", "s", 10)).events[0][0] == 11
    with pytest.raises(EventsLost):
        await store.after("one", "s", 9)


async def test_of_what_was_read_only_a_part_is_kept() -> None:
    store = MemoryEventStore()
    await append(store, *[b"x" * 100_000] * 100)
    assert store.size > MAX_READ
    store.mark_read("one", "s", 100)
    assert MAX_READ - 200_000 < store.size <= MAX_READ
    assert len((await store.after("one", "s", 95)).events) == 5
    with pytest.raises(EventsLost):
        await store.after("one", "s", 50)


async def test_a_session_has_a_share_and_loses_its_own_events_first() -> None:
    store = MemoryEventStore(max_session_bytes=10_000)
    store.append("two", "s", b"x" * 5000)
    await append(store, b"x" * 5000, stream="old")
    store.end("one", "old")
    await append(store, b"x" * 3000, b"y" * 3000, stream="new")
    with pytest.raises(EventsLost):
        await store.after("one", "old", None)
    assert len((await store.after("one", "new", None)).events) == 2
    await append(store, b"z" * 6000, stream="new")
    assert [number for number, _ in (await store.after("one", "new", None)).events] == [2, 3]
    assert len((await store.after("two", "s", None)).events) == 1


async def test_the_budget_of_all_drops_streams_that_ended_first() -> None:
    store = MemoryEventStore(max_bytes=50_000, max_session_bytes=50_000)
    store.append("open", "s", b"x" * 10_000)
    for session in ("first", "second"):
        store.append(session, "s", b"x" * 10_000)
        store.end(session, "s")
    store.append("large", "s", b"x" * 20_000)
    with pytest.raises(EventsLost):
        await store.after("first", "s", None)
    for session in ("open", "second", "large"):
        assert (await store.after(session, "s", None)).events
    store.append("large", "s", b"x" * 25_000)
    store.append("large", "s", b"x" * 25_000 + b"last")
    assert store.size <= 50_000
    assert not (await store.after("open", "s", None)).events
    assert (await store.after("large", "s", None)).events[-1][1].endswith(b"last")
    with pytest.raises(EventsLost):
        await store.after("second", "s", None)


async def test_the_budget_holds_for_many_sessions_with_small_events() -> None:
    budget = 200_000
    store = MemoryEventStore(max_bytes=budget)
    for number in range(2000):
        store.append(f"{number}", "s", b"x")
        store.end(f"{number}", "s")
        assert store.size <= budget
    assert (await store.after("1999", "s", None)).events == [(1, b"x")]
    await store.close()
    assert store.size == 0


async def test_a_session_keeps_a_number_of_ended_streams() -> None:
    store = MemoryEventStore()
    for number in range(MAX_ENDED + 1):
        store.append("one", f"{number}", b"x")
        store.end("one", f"{number}")
    with pytest.raises(EventsLost):
        await store.after("one", "0", None)
    assert (await store.after("one", "1", None)).events


async def test_a_stream_that_was_read_whole_is_dropped_after_a_while() -> None:
    store = MemoryEventStore(linger=0.02)
    for stream in ("whole", "part", "open"):
        await append(store, b"a", b"b", stream=stream)
    for stream, read in (("whole", 2), ("part", 1), ("open", 2)):
        store.mark_read("one", stream, read)
    for stream in ("whole", "part"):
        store.end("one", stream)
    assert (await store.after("one", "whole", 1)).events == [(2, b"b")]
    before = store.size
    await eventually(lambda: store.size < before)
    with pytest.raises(EventsLost):
        await store.after("one", "whole", 1)
    assert (await store.after("one", "part", 1)).events == [(2, b"b")]
    assert (await store.after("one", "open", 1)).events == [(2, b"b")]
    store.mark_read("one", "part", 2)
    await eventually(lambda: store.size == 2 * (1 + EVENT_SIZE))


async def test_a_stream_in_which_nothing_was_said_leaves_nothing() -> None:
    store = MemoryEventStore()
    listener = Listener()
    store.follow("one", "s", listener)
    store.end("one", "s")
    assert listener.is_over
    assert store.size == 0
    with pytest.raises(EventsLost):
        await store.after("one", "s", None)
