"""Streams of events by themselves: what waits, what is kept, and who reads it."""

import asyncio

from mcpearl.runtime.late import LateWatch
from mcpearl.transports.http_server.event_stream import (
    MAX_CHUNK,
    MAX_HISTORY,
    MAX_KEPT,
    EventStream,
)

PLENTY = 64 * 1024 * 1024


def ids(chunk: bytes) -> list[str]:
    return [line[4:].decode() for line in chunk.split(b"\r\n") if line.startswith(b"id: ")]


def test_events_are_numbered_and_read_once() -> None:
    stream = EventStream("s", PLENTY)
    reader = stream.reader(0)
    stream.put(b"1")
    stream.put(b"2")
    assert reader.take() == b"id: s.1\r\ndata: 1\r\n\r\nid: s.2\r\ndata: 2\r\n\r\n"
    assert reader.take() == b""


def test_a_new_reader_goes_on_and_the_old_one_gets_nothing_more() -> None:
    stream = EventStream("s", PLENTY)
    old = stream.reader(0)
    for _ in range(3):
        stream.put(b"x")
    old.take()
    new = stream.reader(1)
    assert old.finished and not new.finished
    stream.put(b"y")
    assert not old.has_news
    assert old.take() == b""
    assert ids(new.take()) == ["s.2", "s.3", "s.4"]
    old.close()
    assert stream.read
    new.close()
    assert not stream.read


def test_who_comes_without_a_position_gets_what_nobody_has_read() -> None:
    stream = EventStream("s", PLENTY)
    stream.put(b"1")
    stream.reader(stream.unread_from()).take()
    stream.put(b"2")
    assert ids(stream.reader(stream.unread_from()).take()) == ["s.2"]


def test_what_waits_for_a_reader_is_bounded_and_the_newest_is_kept() -> None:
    stream = EventStream("s", 1000)
    for _ in range(100):
        stream.put(b"x" * 100)
    assert stream.size <= 1000
    assert ids(stream.reader(stream.unread_from()).take())[-1] == "s.100"
    assert not stream.can_resume(1)
    assert stream.can_resume(99) and stream.can_resume(100)
    assert not stream.can_resume(101)

    many = EventStream("s", PLENTY)
    for _ in range(MAX_KEPT + 10):
        many.put(b"x")
    assert len(ids(many.reader(many.unread_from()).take())) == MAX_KEPT


def test_one_message_as_large_as_the_limit_still_arrives() -> None:
    for id in ("s", None):
        stream = EventStream(id, 1000)
        reader = stream.reader(0)
        stream.put(b"x" * 1000)
        assert not stream.overrun
        assert b"x" * 1000 in reader.take()


def test_of_what_was_read_only_a_little_is_kept() -> None:
    stream = EventStream("s", PLENTY)
    reader = stream.reader(0)
    for _ in range(100):
        stream.put(b"x" * 100_000)
    assert stream.size > MAX_HISTORY
    assert len([id for chunk in iter(reader.take, b"") for id in ids(chunk)]) == 100
    assert stream.size <= MAX_HISTORY
    assert stream.can_resume(95) and not stream.can_resume(50)


def test_a_stream_that_cannot_be_resumed_ends_when_too_much_waits() -> None:
    stream = EventStream(None, 1000)
    reader = stream.reader(0)
    for _ in range(100):
        stream.put(b"x" * 100)
    assert stream.overrun and reader.finished
    assert (stream.size, reader.take()) == (0, b"")


def test_a_chunk_is_bounded_and_nothing_is_lost_between_chunks() -> None:
    for id in ("s", None):
        stream = EventStream(id, PLENTY)
        reader = stream.reader(0)
        for _ in range(100):
            stream.put(b"x" * 10_000)
        chunks = list(iter(reader.take, b""))
        assert max(map(len, chunks)) < MAX_CHUNK + 11_000
        assert b"".join(chunks).count(b"data: ") == 100
        assert not reader.has_news


async def test_a_reader_waits_for_news_or_the_time() -> None:
    stream = EventStream("s", PLENTY)
    reader = stream.reader(0)
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


def test_a_reader_that_fell_behind_what_is_kept_ends() -> None:
    """Rather than that it goes on as if nothing were missing."""
    stream = EventStream("s", 1000)
    reader = stream.reader(0)
    stream.put(b"1")
    assert ids(reader.take()) == ["s.1"]
    for _ in range(100):
        stream.put(b"x" * 100)
    assert reader.take() == b""
    assert reader.is_over
    assert not stream.can_resume(1)
    late = stream.reader(stream.unread_from())  # who asks for what there is gets that
    assert ids(late.take())[-1] == "s.101"
    assert not late.is_over


async def test_who_speaks_can_wait_for_who_reads() -> None:
    stream = EventStream("s", 1000)
    stream.put(b"x" * 900)
    assert not stream.is_full  # nobody is there to wait for
    reader = stream.reader(0)
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


def test_many_small_events_are_much_too() -> None:
    stream = EventStream("s", PLENTY)
    reader = stream.reader(0)
    for _ in range(MAX_KEPT):
        stream.put(b"")
    assert stream.is_full
    reader.take()
    assert not stream.is_full
