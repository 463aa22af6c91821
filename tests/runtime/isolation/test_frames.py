"""Frames: whatever way they are cut, and what is not one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl.runtime.isolation.frames import (
    FROM_PROCESS,
    HEAD_SIZE,
    FrameReader,
    Garbled,
    Kind,
    frame,
)

MARK = b"mark"
KINDS = st.sampled_from(sorted(FROM_PROCESS))


@given(
    frames=st.lists(st.tuples(KINDS, st.binary(max_size=50)), max_size=10),
    sizes=st.lists(st.integers(1, 40), min_size=1),
)
def test_frames_come_out_as_they_went_in(frames: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join(frame(MARK, kind, payload) for kind, payload in frames)
    framer = FrameReader(MARK, 50, FROM_PROCESS)
    found: list[tuple[int, bytes]] = []
    at, turn = 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += framer.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert found == frames


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(b"else", Kind.RESULT, b"{}"), "not a message"),
        (frame(MARK, 99, b"{}"), "not a message"),
        (frame(MARK, Kind.CALL, b"{}"), "not a message"),
        (frame(MARK, Kind.RESULT, b"x" * 101), "over the 100 it may"),
        (b"\x00" * HEAD_SIZE, "not a message"),
    ],
)
def test_what_is_not_a_frame_is_refused(data: bytes, reason: str) -> None:
    for pieces in ([data], [data[:5], data[5:]]):
        framer = FrameReader(MARK, 100, FROM_PROCESS)
        with pytest.raises(Garbled, match=reason):
            for piece in pieces:
                framer.feed(piece)
