"""Streams of events by themselves: what waits, what is kept, and which reader gets it."""

import asyncio

import pytest

from mcpearl.runtime.budget import Budget
from mcpearl.runtime.late import LateWatch
from mcpearl.stores.events import EventsLost
from mcpearl.stores.memory_events import MemoryEventStore
from mcpearl.transports.http_server.event_stream import (
    MAX_CHUNK,
    MAX_WAITING,
    EventStream,
    KeptStream,
)

PLENTY = 64 * 1024 * 1024


def kept(limit: int = PLENTY, store: MemoryEventStore | None = None) -> KeptStream:
    return KeptStream("s", limit, "session", store or MemoryEventStore(), Budget().account())


def ids(chunk: bytes) -> list[str]:
    return [line[4:].decode() for line in chunk.split(b"\r\n") if line.startswith(b"id: ")]


def test_events_are_numbered_and_read_once() -> None:
    stream = kept()
    reader = stream.reader()
    stream.put(b"1")
    stream.put(b"2")
    assert reader.take() == b"id: s.1\r\ndata: 1\r\n\r\nid: s.2\r\ndata: 2\r\n\r\n"
    assert reader.take() == b""


def test_events_of_a_stream_that_is_not_kept_have_no_ids() -> None:
    stream = EventStream(PLENTY, Budget().account())
    reader = stream.reader()
    stream.prime()
    stream.put(b"1")
    assert reader.take() == b"data: 1\r\n\r\n"


async def test_a_new_reader_continues_and_the_old_one_gets_nothing_more() -> None:
    stream = kept()
    old = stream.reader()
    for _ in range(3):
        stream.put(b"x")
    old.take()
    new = await stream.resume(1)
    assert old.finished and not new.finished
    stream.put(b"y")
    assert not old.has_news
    assert old.take() == b""
    assert ids(new.take()) == ["s.2", "s.3", "s.4"]
    old.close()
    assert stream.read
    new.close()
    assert not stream.read


async def test_a_reader_without_a_position_gets_what_was_never_read() -> None:
    stream = kept()
    stream.put(b"1")
    (await stream.resume(None)).take()
    stream.put(b"2")
    assert ids((await stream.resume(None)).take()) == ["s.2"]


async def test_a_stream_is_primed_only_before_its_first_event() -> None:
    stream = kept()
    reader = stream.reader()
    stream.prime()
    stream.prime()
    assert reader.take() == b"id: s.1\r\ndata: \r\n\r\n"


def test_one_message_as_large_as_the_limit_still_arrives() -> None:
    for stream in (kept(1000), EventStream(1000, Budget().account())):
        reader = stream.reader()
        stream.put(b"x" * 1000)
        assert not stream.overrun
        assert b"x" * 1000 in reader.take()


def test_a_stream_that_is_not_kept_ends_when_too_much_waits() -> None:
    stream = EventStream(1000, Budget().account())
    reader = stream.reader()
    for _ in range(100):
        stream.put(b"x" * 100)
    assert stream.overrun and stream.ended and reader.is_over
    assert reader.take() == b""


def test_a_chunk_is_bounded_and_nothing_is_lost_between_chunks() -> None:
    for stream in (kept(), EventStream(PLENTY, Budget().account())):
        reader = stream.reader()
        for _ in range(100):
            stream.put(b"x" * 10_000)
        chunks = list(iter(reader.take, b""))
        assert max(map(len, chunks)) < MAX_CHUNK + 11_000
        assert b"".join(chunks).count(b"data: ") == 100
        assert not reader.has_news


async def test_a_reader_waits_for_news_or_the_time() -> None:
    stream = kept()
    reader = stream.reader()
    assert await reader.wait(LateWatch(0.01)) is False
    waiting = asyncio.create_task(reader.wait(LateWatch(10)))
    await asyncio.sleep(0)
    stream.put(b"1")
    assert await waiting is True
    reader.take()
    waiting = asyncio.create_task(reader.wait(LateWatch(10)))
    await asyncio.sleep(0)
    stream.end()
    assert await waiting is True and reader.finished


async def test_a_reader_that_fell_behind_ends() -> None:
    """It must not continue as if nothing were missing; its client comes back with its position."""
    stream = kept(1000)
    reader = stream.reader()
    stream.put(b"1")
    assert ids(reader.take()) == ["s.1"]
    for _ in range(100):
        stream.put(b"x" * 100)
    assert reader.take() == b""
    assert reader.is_over and not stream.ended
    reader.close()
    assert ids((await stream.resume(1)).take())[-1] == "s.101"


async def test_a_reader_that_comes_too_late_is_told() -> None:
    store = MemoryEventStore(max_session_bytes=2000)
    stream = kept(store=store)
    for _ in range(100):
        stream.put(b"x" * 100)
    current = stream.reader()
    with pytest.raises(EventsLost):
        await stream.resume(1)
    assert current.is_current  # the attempt displaced nothing
    assert ids((await stream.resume(None)).take())[-1] == "s.100"


async def test_a_sender_can_wait_for_the_reader() -> None:
    stream = kept(1000)
    stream.put(b"x" * 900)
    assert not stream.is_full  # there is no reader to wait for
    reader = await stream.resume(None)
    assert stream.is_full
    waiting = asyncio.create_task(stream.until_room())
    await asyncio.sleep(0)
    reader.take()
    await asyncio.wait_for(waiting, 30)
    stream.put(b"x" * 900)
    leaving = asyncio.create_task(stream.until_room())
    await asyncio.sleep(0)
    assert not leaving.done()
    reader.close()
    await asyncio.wait_for(leaving, 30)


def test_many_small_events_fill_a_stream_too() -> None:
    stream = kept()
    reader = stream.reader()
    for _ in range(MAX_WAITING):
        stream.put(b"")
    assert stream.is_full
    reader.take()
    assert not stream.is_full


async def test_a_reader_is_sent_away_after_what_waits() -> None:
    stream = kept()
    reader = stream.reader()
    stream.put(b"1")
    stream.send_away(5)
    assert reader.take() == b"id: s.1\r\ndata: 1\r\n\r\nretry: 5\r\n\r\n"
    assert reader.is_over
    reader.close()
    stream.put(b"2")
    again = await stream.resume(1)
    assert ids(again.take()) == ["s.2"] and not again.is_over


async def test_a_stream_that_ended_is_resumed_by_a_new_object() -> None:
    """As another process would, or this one after it let go of the stream."""
    store = MemoryEventStore()
    first = kept(store=store)
    first.put(b"1")
    first.put(b"2")
    first.end()
    first.close()
    second = kept(store=store)
    reader = await second.resume(1)
    assert ids(reader.take()) == ["s.2"]
    assert reader.is_over
    await store.close()


async def test_events_reach_a_reader_at_another_process_too() -> None:
    store = MemoryEventStore()
    writer, other = kept(store=store), kept(store=store)
    reader = await other.resume(None)
    writer.put(b"1")
    assert ids(reader.take()) == ["s.1"]
    writer.end()
    assert reader.is_over
    await store.close()
