"""Events are read per the WHATWG rules, and the same at any cut of the bytes."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl.net.sse import (
    KEEP_ALIVE,
    EventReader,
    OversizedEvent,
    ServerSentEvent,
    format_event,
    format_retry,
)


def read(stream: bytes, max_event: int = 1000) -> list[ServerSentEvent | OversizedEvent]:
    return EventReader(max_event).feed(stream)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [ServerSentEvent(b"a")]),
        (b"data: a\r\n\r\n", [ServerSentEvent(b"a")]),
        (b"data: a\r\r", [ServerSentEvent(b"a")]),
        (b"data: a\r\n\rdata: b\n\r\n", [ServerSentEvent(b"a"), ServerSentEvent(b"b")]),
        (b"data:a\n\n", [ServerSentEvent(b"a")]),
        (b"data:  a\n\n", [ServerSentEvent(b" a")]),
        (b"data: a:b\n\n", [ServerSentEvent(b"a:b")]),
        (b"data: a\ndata: b\n\n", [ServerSentEvent(b"a\nb")]),
        (b"data\n\ndata\ndata\n\n", [ServerSentEvent(b""), ServerSentEvent(b"\n")]),
        (b": comment\ndata: a\n: another\n\n", [ServerSentEvent(b"a")]),
        (b":\n:\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent(b"a")]),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"event: endpoint\ndata: /m\n\ndata: b\n\n",
         [ServerSentEvent(b"/m", "endpoint"), ServerSentEvent(b"b")]),
        (b"event: lonely\n\ndata: a\n\n", [ServerSentEvent(b"a")]),
        (b"id: 1\ndata: a\n\ndata: b\n\n",
         [ServerSentEvent(b"a", id="1"), ServerSentEvent(b"b", id="1")]),
        (b"id: 1\ndata: a\n\nid\ndata: b\n\n",
         [ServerSentEvent(b"a", id="1"), ServerSentEvent(b"b")]),
        (b"id: 1\0\ndata: a\n\n", [ServerSentEvent(b"a")]),
        (b"unknown: x\nDATA: no\ndata: a\n\n", [ServerSentEvent(b"a")]),
        ("data: é\u2028\x0b\n\n".encode(), [ServerSentEvent("é\u2028\x0b".encode())]),
        (b"data: unfinished\n", []),
    ],
)  # fmt: skip
def test_reads_what_the_standard_says(stream: bytes, events: list[ServerSentEvent]) -> None:
    assert read(stream) == events


def test_an_id_counts_once_its_event_is_whole() -> None:
    reader = EventReader(1000)
    reader.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b")
    assert reader.last_id == "1"
    reader.feed(b"\n\n")
    assert reader.last_id == "2"


def test_an_id_without_data_is_where_to_come_back_to() -> None:
    reader = EventReader(1000)
    assert reader.feed(b"id: prime\ndata:\n\n") == [ServerSentEvent(b"", id="prime")]
    assert reader.feed(b"id: later\n\n") == []
    assert reader.last_id == "later"


@pytest.mark.parametrize(
    ("line", "retry"),
    [(b"retry: 500", 500), (b"retry:0", 0), (b"retry: 5s", None), (b"retry: -1", None),
     (b"retry", None), (b"retry: 99999999999", None), (b"retry: \xd9\xa3", None)],
)  # fmt: skip
def test_retry_is_a_number_of_milliseconds(line: bytes, retry: int | None) -> None:
    reader = EventReader(1000)
    reader.feed(line + b"\n")
    assert reader.retry == retry


def test_a_new_stream_goes_on_where_the_old_one_broke() -> None:
    reader = EventReader(1000)
    reader.feed(b"id: 7\nretry: 9\ndata: a\n\nid: 8\nevent: x\ndata: hal")
    reader.restart()
    assert (reader.last_id, reader.retry) == ("7", 9)
    assert reader.feed(b"\xef\xbb\xbfdata: b\n\n") == [ServerSentEvent(b"b", id="7")]


@pytest.mark.parametrize("stream", [
    b"data: " + b"x" * 11 + b"\n\n",
    b"data: " + b"x" * 100 + b"\n\n",
    b"data: 12345\ndata: 67890\n\n",
    b"data: 1\n" * 6 + b"\n",
    b"event: " + b"x" * 100 + b"\n\n",
])  # fmt: skip
def test_an_event_over_the_bound_is_reported_and_the_stream_goes_on(stream: bytes) -> None:
    assert read(stream + b"data: 0123456789\n\n", 10) == [
        OversizedEvent(10),
        ServerSentEvent(b"0123456789"),
    ]


def test_comments_count_for_nothing() -> None:
    stream = (b": " + b"x" * 100 + b"\n" + b":\n" * 50) + b"data: 0123456789\n\n"
    assert read(stream, 10) == [ServerSentEvent(b"0123456789")]


def test_nothing_of_an_endless_line_is_held() -> None:
    reader = EventReader(10)
    for _ in range(1000):
        assert reader.feed(b"x" * 1000) == []
    assert len(reader._line) <= 16
    assert reader.feed(b"\n\ndata: a\n\n") == [OversizedEvent(10), ServerSentEvent(b"a")]


LINES = st.lists(
    st.tuples(
        st.sampled_from(
            [b"data: {}", b"data:", b"data", b"data: 12345678901", b"id: 7", b"id", b": c", b"",
             b"event: e", b"retry: 5", b"\xef\xbb\xbfdata: b", b"data: \xff", b"x" * 30]
        ),
        st.sampled_from([b"\n", b"\r", b"\r\n"]),
    )
)  # fmt: skip


@given(LINES, st.lists(st.integers(0, 400)))
def test_any_cut_gives_the_same_events(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(part for line in lines for part in line)
    whole, cut = EventReader(10), EventReader(10)
    expected = whole.feed(stream)
    places = sorted({0, len(stream), *(place for place in cuts if place < len(stream))})
    events = []
    for start, end in pairwise(places):
        events += cut.feed(stream[start:end])
    assert events == expected
    assert (cut.last_id, cut.retry) == (whole.last_id, whole.retry)


@given(LINES)
def test_byte_by_byte_gives_the_same_events(lines: list[tuple[bytes, bytes]]) -> None:
    stream = b"".join(part for line in lines for part in line)
    reader = EventReader(10)
    one_by_one = [event for byte in stream for event in reader.feed(bytes([byte]))]
    assert one_by_one == read(stream, 10)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    read(data, 20)


def test_what_is_written_is_read() -> None:
    stream = format_retry(1500) + KEEP_ALIVE + format_event(b'{"a":1}', "é-1", "x") + KEEP_ALIVE
    reader = EventReader(1000)
    assert reader.feed(stream) == [ServerSentEvent(b'{"a":1}', "x", "é-1")]
    assert reader.retry == 1500


def test_many_short_lines_take_no_more_memory_than_their_data() -> None:
    reader = EventReader(1_000_000)
    tracemalloc.start()
    try:
        for _ in range(100):
            assert reader.feed(b"data:ab\n" * 2000) == []
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2 * 3 * 200_000
    (event,) = reader.feed(b"\n")
    assert isinstance(event, ServerSentEvent)
    assert event.data == b"\n".join([b"ab"] * 200_000)
