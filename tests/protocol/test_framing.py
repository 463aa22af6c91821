"""Cutting byte streams into messages, whatever a peer sends."""

import time
import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpearl.protocol.framing import (
    MAX_HEADER,
    ContentLengthFramer,
    DetectingFramer,
    Frame,
    FrameError,
    Framer,
    NewlineFramer,
)

MIB = 1024 * 1024
FRAMERS = [NewlineFramer, ContentLengthFramer, DetectingFramer]
AnyFramer = Callable[[int], Framer]


def frames(framer: Framer, chunks: Iterable[bytes]) -> list[Frame]:
    return [frame for chunk in chunks for frame in framer.feed(chunk)]


def outline(found: list[Frame]) -> list[bytes | str]:
    """Messages as they are, and "!" for each error."""
    return ["!" if isinstance(frame, FrameError) else frame for frame in found]


def headed(message: bytes, length: object = None) -> bytes:
    shown = len(message) if length is None else length
    return f"Content-Length: {shown}\r\n\r\n".encode() + message


# Lines


def test_a_line_is_a_message() -> None:
    framer = NewlineFramer(100)
    assert framer.feed(b'{"a":1}\n') == [b'{"a":1}']
    assert framer.feed(b'{"b":') == []
    assert framer.feed(b"2}") == []
    assert framer.feed(b'\n{"c":3}\n{"d":4}\n{') == [b'{"b":2}', b'{"c":3}', b'{"d":4}']
    assert framer.feed(b"}\n") == [b"{}"]


def test_crlf_ends_a_line_too() -> None:
    assert NewlineFramer(100).feed(b"{}\r\n[]\r\n") == [b"{}", b"[]"]
    assert frames(NewlineFramer(100), [b"{}\r", b"\n[]", b"\r\n"]) == [b"{}", b"[]"]


def test_blank_lines_are_skipped() -> None:
    assert NewlineFramer(100).feed(b"\n\r\n  \t\n{}\n\n\n[]\n \n") == [b"{}", b"[]"]


def test_a_line_may_have_exactly_the_bound() -> None:
    assert NewlineFramer(4).feed(b"1234\n12345\n123\n") == [
        b"1234",
        FrameError("message is over the limit of 4 bytes", b"1234"),
        b"123",
    ]


def test_a_line_over_the_bound_is_refused_once_and_at_once() -> None:
    framer = NewlineFramer(4)
    assert framer.feed(b"123") == []
    assert outline(framer.feed(b"45")) == ["!"]
    assert framer.feed(b"6" * 1000) == []
    assert framer.feed(b"789\n{}\n") == [b"{}"]


def test_a_framed_message_is_read_back() -> None:
    assert NewlineFramer(100).feed(NewlineFramer(100).frame(b"{}")) == [b"{}"]


# Content-Length


def test_a_header_says_how_long_a_message_is() -> None:
    framer = ContentLengthFramer(100)
    assert framer.feed(headed(b'{"a":\n1}')) == [b'{"a":\n1}']
    assert framer.feed(headed(b"{}") + headed(b"[]") + b"Content-") == [b"{}", b"[]"]
    assert framer.feed(b"Length: 7\r\n\r\n{") == []
    assert framer.feed(b'"c":3}' + headed(b"{}")[:-1]) == [b'{"c":3}']
    assert framer.feed(b"}") == [b"{}"]


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: 2\r\n\r\n",
        b"content-length:2\n\n",
        b"CONTENT-LENGTH : \t2 \r\n\r\n",
        b"Content-Length: 2\r\nContent-Type: application/json; charset=utf-8\r\n\r\n",
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n",
        b"X-Content-Length: 9\r\nContent-Length: 2\r\n\r\n",
        b"\r\n\n  Content-Length: 0002\r\n\r\n",
        b"Content-Length: 2\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_headers_may_be_spelled_in_many_ways(header: bytes) -> None:
    stream = header + b"{}" + header + b"[]"
    assert ContentLengthFramer(100).feed(stream) == [b"{}", b"[]"]
    assert frames(ContentLengthFramer(100), (stream[i : i + 1] for i in range(len(stream)))) == [
        b"{}",
        b"[]",
    ]


def test_empty_and_blank_bodies_are_skipped() -> None:
    assert ContentLengthFramer(9).feed(headed(b"") + headed(b" \n ") + headed(b"{}")) == [b"{}"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (headed(b'{"a":1}', -7), "not a whole number: '-7'"),
        (headed(b'{"a":1}', "+7"), "not a whole number"),
        (headed(b'{"a":1}', "0x7"), "not a whole number"),
        (headed(b'{"a":1}', "7.0"), "not a whole number"),
        (headed(b'{"a":1}', "seven"), "not a whole number: 'seven'"),
        (headed(b'{"a":1}', "7 7"), "not a whole number"),
        (headed(b'{"a":1}', ""), "not a whole number: ''"),
        (headed(b'{"a":1}', "\N{ARABIC-INDIC DIGIT SEVEN}"), "not a whole number"),
        (headed(b'{"a":1}', 101), "Content-Length 101 is over the limit of 100 bytes"),
        (headed(b'{"a":1}', 10**15), "over the limit"),
        (headed(b'{"a":1}', "9" * 5000), ""),
        (b'Content-Type: text/plain\r\n\r\n{"a":1}', "without Content-Length"),
        (b'garbage\r\n\r\n{"a":1}', "without Content-Length"),
        (b'\x00\xff\xfe\r\n\r\n{"a":1}', "without Content-Length"),
        (b"X: " + b"y" * 5000 + b'\r\n\r\n{"a":1}', "longer than 4096"),
        (b"Content-Length: 7\r\nX: " + b"y" * 5000 + b'\r\n\r\n{"a":1}', "longer than 4096"),
        (b"Content-Length: 7\r\n" * 1000, ""),
        (b"y" * 20_000, "longer than 4096"),
    ],
)
def test_bad_framing_is_told_in_its_place(bad: bytes, reason: str) -> None:
    found = ContentLengthFramer(100).feed(headed(b"{}") + bad + headed(b"[]") + headed(b"{}"))
    assert outline(found)[0] == b"{}"
    assert outline(found)[-2:] == [b"[]", b"{}"]
    refused = found[1:-2]
    assert refused
    assert all(isinstance(frame, FrameError) for frame in refused)
    assert isinstance(refused[0], FrameError)
    assert reason in refused[0].reason
    assert len(refused[0].reason) < 200


def test_each_message_over_the_limit_is_told() -> None:
    stream = headed(b"x" * 200) + headed(b"{}") + headed(b"y" * 300) + headed(b"z" * 400)
    assert outline(ContentLengthFramer(100).feed(stream + headed(b"[]"))) == [
        "!",
        b"{}",
        "!",
        "!",
        b"[]",
    ]


def test_of_two_lengths_that_differ_the_one_before_the_body_is_tried() -> None:
    stream = b"Content-Length: 9\r\nContent-Length: 2\r\n\r\n{}" + headed(b"[]")
    assert ContentLengthFramer(100).feed(stream) == [
        FrameError("header block with more than one Content-Length"),
        b"{}",
        b"[]",
    ]


def test_a_length_too_short_costs_only_its_own_message() -> None:
    stream = headed(b'{"a":1}', 5) + headed(b"[1]") + headed(b"[2]")
    assert outline(ContentLengthFramer(100).feed(stream)) == [b'{"a":', "!", b"[1]", b"[2]"]


def test_a_length_too_long_costs_only_its_own_message() -> None:
    """No JSON can hold a header line, so the message that was run into is found."""
    stream = headed(b'{"a":1}', 30) + headed(b"[1]") + headed(b"[2]")
    found = ContentLengthFramer(100).feed(stream)
    assert found == [
        FrameError("Content-Length 30 runs into the next message"),
        b"[1]",
        b"[2]",
    ]


def test_a_length_that_cuts_the_next_header_costs_the_next_message_too() -> None:
    stream = headed(b'{"a":1}', 10) + headed(b"[1]") + headed(b"[2]")
    assert outline(ContentLengthFramer(100).feed(stream)) == [b'{"a":1}Con', "!", b"[2]"]


def test_a_header_inside_a_string_of_a_body_is_text() -> None:
    body = b'{"text":"Content-Length: 5\\r\\n\\r\\nhello"}'
    assert ContentLengthFramer(100).feed(headed(body)) == [body]


def test_a_length_framed_message_is_read_back() -> None:
    framer = ContentLengthFramer(100)
    assert framer.feed(framer.frame(b"{}")) == [b"{}"]


# Which of the two


@pytest.mark.parametrize(
    "first", [b"{}\n", b"[]\r\n", b"\r\n\n  {}\n", b"Connected to the database\n", b"co\n", b"1\n"]
)
def test_whatever_is_no_header_is_a_line(first: bytes) -> None:
    for chunks in ([first], [first[i : i + 1] for i in range(len(first))]):
        framer = DetectingFramer(100)
        assert frames(framer, chunks) == [first.strip()]
        assert isinstance(framer.chosen, NewlineFramer)
        assert framer.feed(b'{"a":1}\n') == [b'{"a":1}']
        assert framer.frame(b"{}") == b"{}\n"


@pytest.mark.parametrize(
    "first", [headed(b"{}"), b"\r\n" + headed(b"{}"), b"content-type: x\n" + headed(b"{}")]
)
def test_a_content_header_is_a_header(first: bytes) -> None:
    for chunks in ([first], [first[i : i + 1] for i in range(len(first))]):
        framer = DetectingFramer(100)
        assert frames(framer, chunks) == [b"{}"]
        assert isinstance(framer.chosen, ContentLengthFramer)
        assert framer.frame(b"{}") == b"Content-Length: 2\r\n\r\n{}"


def test_lines_are_sent_to_a_peer_that_has_said_nothing() -> None:
    framer = DetectingFramer(100)
    assert framer.feed(b" \r\n") == []
    assert framer.chosen is None
    assert framer.frame(b"{}") == b"{}\n"


# Bounds


def rejected_memory(framer: Framer, beginning: bytes) -> int:
    """The most memory held while 100 MB pass by."""
    chunk = b"x" * (64 * 1024)
    framer.feed(b"")
    tracemalloc.start()
    try:
        errors = framer.feed(beginning)
        for _ in range(100 * MIB // len(chunk)):
            errors += framer.feed(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outline(errors) == ["!"]
    return peak


@pytest.mark.parametrize(
    ("make", "beginning", "following"),
    [
        (NewlineFramer, b"x", b"\n{}\n"),
        (DetectingFramer, b"x", b"\n{}\n"),
        (ContentLengthFramer, headed(b"", 100 * MIB), headed(b"{}")),
        (DetectingFramer, headed(b"", 100 * MIB), headed(b"{}")),
        (ContentLengthFramer, b"no header at all", headed(b"{}")),
    ],
)
def test_what_is_over_the_bound_is_never_held(
    make: AnyFramer, beginning: bytes, following: bytes
) -> None:
    framer = make(MIB)
    assert rejected_memory(framer, beginning) < 2 * MIB
    assert framer.feed(following) == [b"{}"]


@pytest.mark.parametrize("make", FRAMERS)
def test_a_hundred_megabytes_in_one_read_are_refused_once(make: AnyFramer) -> None:
    framer = make(MIB)
    whole = headed(b"x" * (100 * MIB)) if make is ContentLengthFramer else b"x" * (100 * MIB)
    assert outline(framer.feed(whole)) == ["!"]
    following = headed(b"{}") if make is ContentLengthFramer else b"\n{}\n"
    assert framer.feed(following) == [b"{}"]


@pytest.mark.parametrize(
    ("make", "stream"),
    [
        (NewlineFramer, b"x" * 200_000),
        (NewlineFramer, b"{}\n" * 70_000),
        (ContentLengthFramer, headed(b"x" * 200_000)),
        (ContentLengthFramer, headed(b"{}") * 9_000),
        (ContentLengthFramer, b"\r\n" * 100_000),
        (ContentLengthFramer, b"x" * 200_000),
    ],
)
def test_single_bytes_cost_no_more_each_in_a_long_stream(make: AnyFramer, stream: bytes) -> None:
    def seconds(part: bytes) -> float:
        framer = make(MIB)
        start = time.process_time()
        for i in range(len(part)):
            framer.feed(part[i : i + 1])
        return time.process_time() - start

    quarter = min(seconds(stream[: len(stream) // 4]) for _ in range(3))
    assert seconds(stream) < 12 * quarter + 0.2


@pytest.mark.parametrize(
    "stream",
    [
        headed(b"{}") * 40_000,
        b"\r\n" + headed(b"{}\r\n") * 40_000,
        b"Content-Length: 1\r\n" * 50_000,
        b"Content-Length: 99999999999\r\n\r\n" * 30_000,
        b"Content-Length: 99999999999\r\n" * 30_000,
        b"\n\r\n" * 300_000,
    ],
)
def test_a_megabyte_of_headers_is_read_in_a_moment(stream: bytes) -> None:
    framer = ContentLengthFramer(MIB)
    start = time.process_time()
    found = framer.feed(stream)
    assert time.process_time() - start < 2.0
    assert len(found) <= stream.count(b"\r\n\r\n") + len(stream) // (MAX_HEADER - 64) + 1


# Properties

_json = st.sampled_from([b"{}", b"[1]", b'{"a":"Content-Length: 3"}', b'{"b":\n2}', b"x" * 50])
_pieces = st.one_of(
    _json,
    _json.map(headed),
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b"\r",
            b" ",
            b"\n\n",
            b"\r\n\r\n",
            b"Content-Length:",
            b"content-length: 3\r\n",
            b"Content-Length: -1\r\n\r\n",
            b"Content-Length: 999\r\n\r\n",
            b"Content-Length: 25\r\n\r\n",
            b"Content-Length:" + b" " * 70 + b"5\r\n\r\n",
            b"Content-Length: " + b"1" * 30 + b"\r\n\r\n",
            b"X: y\r\n",
            b"Con",
            b"y" * 4100,
            b"Content-Length: 2\r\nX: " + b"z" * 4090,
        ]
    ),
    st.binary(max_size=12),
)
_streams = st.lists(_pieces, max_size=12).map(b"".join)


@pytest.mark.parametrize("make", FRAMERS)
@settings(max_examples=300, deadline=None)
@given(stream=_streams, data=st.data())
def test_where_a_stream_is_cut_does_not_matter(
    make: AnyFramer, stream: bytes, data: st.DataObject
) -> None:
    whole = make(40).feed(stream)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    ends = [*cuts, len(stream)]
    parts = [stream[a:b] for a, b in zip([0, *cuts], ends, strict=True)]
    assert frames(make(40), parts) == whole


@pytest.mark.parametrize("make", FRAMERS)
@settings(max_examples=60, deadline=None)
@given(stream=_streams)
@example(stream=b"Content-Length: 2\r\nX: " + b"z" * 4090)
@example(stream=b"x\n\nContent-Length: 2" + b" " * 70 + b"\r\n\r\n{}" + headed(b"[]"))
@example(stream=b"x\n\nContent-Length:" + b" " * 70 + b"2\r\n\r\n{}" + headed(b"[]"))
@example(stream=b"x\n\nContent-Length: " + b"0" * 70 + b"2\r\n\r\n{}" + headed(b"[]"))
def test_byte_by_byte_is_the_same_as_at_once(make: AnyFramer, stream: bytes) -> None:
    singles = (stream[i : i + 1] for i in range(len(stream)))
    assert frames(make(40), singles) == make(40).feed(stream)


@pytest.mark.parametrize("make", FRAMERS)
@settings(max_examples=100, deadline=None)
@given(stream=st.binary(max_size=300))
def test_any_bytes_give_messages_within_the_bound_or_errors(make: AnyFramer, stream: bytes) -> None:
    for frame in make(40).feed(stream):
        assert isinstance(frame, FrameError) or 0 < len(frame) <= 40


@settings(max_examples=100, deadline=None)
@given(stream=_streams)
def test_after_anything_a_length_framed_message_is_read_again(stream: bytes) -> None:
    """One message may be lost to a length that ran into it; the ones after are whole."""
    framer = ContentLengthFramer(1000)
    framer.feed(stream)
    # Enough to satisfy a body that was announced and never came.
    framer.feed(headed(b'{"lost":1}') * 200)
    assert framer.feed(headed(b"{}")) == [b"{}"]


@settings(max_examples=100, deadline=None)
@given(stream=_streams)
def test_after_anything_a_line_is_read_again(stream: bytes) -> None:
    framer = NewlineFramer(1000)
    framer.feed(stream)
    assert outline(framer.feed(b"\n{}\n"))[-1] == b"{}"


@pytest.mark.parametrize("make", FRAMERS)
@settings(max_examples=100, deadline=None)
@given(
    messages=st.lists(st.binary(min_size=1).map(lambda b: b'"%b"' % b.hex().encode())),
    sizes=st.lists(st.integers(1, 40), min_size=1),
)
def test_what_one_framer_sends_the_other_reads(
    make: AnyFramer, messages: list[bytes], sizes: list[int]
) -> None:
    sender = make(1000)
    if isinstance(sender, DetectingFramer):
        sender.feed(b"{")
    stream = b"".join(map(sender.frame, messages))
    chunks = []
    while stream:
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(stream[:size])
        stream = stream[size:]
    assert frames(make(1000), chunks) == messages
