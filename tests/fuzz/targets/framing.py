"""Framing of byte streams: the same messages however the bytes are cut, and none over the bound."""

from mcpearl.protocol.framing import FRAMERS, FrameError, framer_named
from tests.fuzz.target import Target, cuts, require

MAX = 64


def check(data: bytes) -> None:
    for name in FRAMERS:
        expected = None
        for parts in cuts(data):
            framer = framer_named(name, MAX)
            frames = [frame for part in parts for frame in framer.feed(part)]
            for frame in frames:
                within = isinstance(frame, FrameError) or 0 < len(frame) <= MAX
                require(within, f"{name}: a message is empty or over the bound")
            expected = frames if expected is None else expected
            require(frames == expected, f"{name}: a cut changes the messages")


def read(data: bytes) -> None:
    for name in FRAMERS:
        framer = framer_named(name, 1024 * 1024)
        for start in range(0, len(data), 1024):
            framer.feed(data[start : start + 1024])


TARGET = Target(
    "framing", check, (b"Content-Length: ", b"content-type:", b"\r\n\r\n", b"\n\n", b"{}"), read
)
