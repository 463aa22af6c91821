"""Splits a byte stream into messages: by newlines, by `Content-Length`, or by detecting which.

A framer is fed the bytes as they are read and returns whole messages, in order. A message that is too
long or badly framed is returned as a `FrameError` in its place, and the stream continues after it.
Framers do not look inside a message.
"""

import re
from typing import Protocol

from msgspec import Struct

_DISCARD_STEP = 64 * 1024
MAX_HEADER = 4096
_HEAD = 200  # bytes that are kept of a line that is too long
_CR = 13


class FrameError(Struct, frozen=True):
    """Bytes that are not a message, and the reason."""

    reason: str
    head: bytes = b""
    """How a line that is too long begins."""


Frame = bytes | FrameError


class Framer(Protocol):
    """Splits and joins the messages of a byte stream."""

    @property
    def held(self) -> int:
        """Bytes of the message that has not arrived whole."""
        ...

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes as they were read. Return the messages they complete."""
        ...

    def frame(self, message: bytes) -> bytes:
        """Return the bytes that carry `message`."""
        ...


class NewlineFramer:
    """One message per line. Blank lines are skipped and a CR before the newline is dropped."""

    __slots__ = ("_discarding", "_max", "_tail")

    def __init__(self, max_message: int) -> None:
        self._max = max_message
        self._tail = bytearray()  # the unfinished line
        self._discarding = False  # inside a line that was already refused

    @property
    def held(self) -> int:
        """Bytes of the unfinished line."""
        return len(self._tail)

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes as they were read. Return the lines they complete."""
        frames: list[Frame] = []
        lines = data.split(b"\n")
        if self._tail or self._discarding:
            self._extend(lines[0], frames)
            if len(lines) == 1:
                return frames
            lines[0] = self._end_line()
        rest = lines.pop()
        for line in lines:
            if len(line) > self._max:
                frames.append(_too_long(self._max, line))
            elif line and not line.isspace():
                frames.append(line[:-1] if line[-1] == _CR else line)
        if rest:
            self._extend(rest, frames)
        return frames

    def _extend(self, part: bytes, frames: list[Frame]) -> None:
        """Add to the unfinished line, or refuse the line as soon as it is too long."""
        if self._discarding:
            return
        if len(self._tail) + len(part) > self._max:
            frames.append(_too_long(self._max, bytes(self._tail[:_HEAD]) + part[:_HEAD]))
            self._tail = bytearray()
            self._discarding = True
        else:
            self._tail += part

    def _end_line(self) -> bytes:
        line = bytes(self._tail)
        self._tail = bytearray()
        self._discarding = False
        return line

    def frame(self, message: bytes) -> bytes:
        """Return `message` as a line."""
        return message + b"\n"


# Compiled when a peer uses headers, which few do: a server on stdio starts sooner.
_LENGTH = rb"(?im)^content-length[ \t]*:[ \t]*([^\r\n]*)"
# Where framing can resume. Bounded, so that the beginning of a match fits into `_HEADER_TAIL`.
_NEXT_HEADER = rb"(?i)content-length[ \t]{0,8}:[ \t]{0,8}\d{1,20}[ \t]{0,8}\r?\n"
_HEADER_TAIL = 64
_BLANK = rb"\s+"


class ContentLengthFramer:
    """`Content-Length: N`, a blank line, N bytes. After bad framing it looks for the next header."""

    __slots__ = ("_buffer", "_lost", "_max", "_want")

    def __init__(self, max_message: int) -> None:
        self._max = max_message
        self._buffer = bytearray()
        self._want = -1  # bytes of the body being collected, or -1 while in headers
        self._lost = False  # framing is broken; looking for the next header

    @property
    def held(self) -> int:
        """Bytes of the unfinished message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes as they were read. Return the messages they complete."""
        frames: list[Frame] = []
        # In slices, so that a message to be refused is never held as a whole.
        for start in range(0, len(data), _DISCARD_STEP):
            self._buffer += data[start : start + _DISCARD_STEP]
            while self._step(frames):
                pass
        return frames

    def _step(self, frames: list[Frame]) -> bool:
        """Take one header block or body off the buffer. Return False if more bytes are needed."""
        if self._lost:
            return self._find_header()
        if self._want < 0:
            return self._read_headers(frames)
        if len(self._buffer) < self._want:
            return False
        self._read_body(frames)
        return True

    def _read_body(self, frames: list[Frame]) -> None:
        with memoryview(self._buffer) as view:
            body = bytes(view[: self._want])
        # JSON text cannot contain a header line, so one in the body belongs to the next message.
        swallowed = re.search(_NEXT_HEADER, body) if b"\n" in body else None
        if swallowed is not None:
            frames.append(FrameError(f"Content-Length {self._want} runs into the next message"))
            del self._buffer[: swallowed.start()]
        else:
            if body and not body.isspace():
                frames.append(body)
            del self._buffer[: self._want]
        self._want = -1

    def _read_headers(self, frames: list[Frame]) -> bool:
        buffer = self._buffer
        blank = re.match(_BLANK, buffer)
        if blank is not None:
            del buffer[: blank.end()]
        end = _header_end(buffer)
        if end >= 0:
            reason = self._accept(bytes(buffer[:end]))
            if reason:
                self._lose(frames, reason, end, end)
            else:
                del buffer[:end]
            return True
        if len(buffer) < MAX_HEADER:
            return False
        reason = f"header block longer than {MAX_HEADER} bytes"
        self._lose(frames, reason, MAX_HEADER, MAX_HEADER - _HEADER_TAIL)
        return True

    def _accept(self, block: bytes) -> str:
        """Read the length from a header block. Return the reason if it cannot be used."""
        found = {text.strip() for text in re.findall(_LENGTH, block)}
        if not found:
            return "header block without Content-Length"
        if len(found) > 1:
            return "header block with more than one Content-Length"
        text = found.pop()
        if not text.isdigit() or len(text) > 20:
            shown = text[:32].decode("ascii", "replace")
            return f"Content-Length is not a whole number: {shown!r}"
        length = int(text)
        if length > self._max:
            return f"Content-Length {length} is over the limit of {self._max} bytes"
        self._want = length
        return ""

    def _lose(self, frames: list[Frame], reason: str, scanned: int, skip: int) -> None:
        """Give up on a block, which may end with the start of a valid one."""
        frames.append(FrameError(reason))
        headers = re.compile(_NEXT_HEADER).finditer(self._buffer, 1, scanned)
        later = [found.start() for found in headers]
        del self._buffer[: later[-1] if later else skip]
        self._lost = not later

    def _find_header(self) -> bool:
        found = re.search(_NEXT_HEADER, self._buffer)
        if found is None:
            # Keep only what could be the beginning of a header.
            del self._buffer[: max(0, len(self._buffer) - _HEADER_TAIL)]
            return False
        del self._buffer[: found.start()]
        self._lost = False
        return True

    def frame(self, message: bytes) -> bytes:
        """Return `message` with its header."""
        return b"Content-Length: %d\r\n\r\n%b" % (len(message), message)


def _header_end(buffer: bytearray) -> int:
    """Return where the blank line after the headers ends, or -1 if it has not arrived."""
    end = buffer.find(b"\n\r\n", 0, MAX_HEADER)
    if end >= 0:
        end += 3
    bare = buffer.find(b"\n\n", 0, MAX_HEADER if end < 0 else end)
    return end if bare < 0 else bare + 2


_HEADER_START = b"content-"


class DetectingFramer:
    """Uses the framing of the peer's first bytes: `Content-` starts a header, all else a line."""

    __slots__ = ("_begin", "_max", "chosen")

    def __init__(self, max_message: int) -> None:
        self._max = max_message
        self._begin = b""  # not enough bytes to decide yet
        self.chosen: NewlineFramer | ContentLengthFramer | None = None

    @property
    def held(self) -> int:
        """Bytes of the unfinished message."""
        return 0 if self.chosen is None else self.chosen.held

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes as they were read. Return the messages they complete."""
        if self.chosen is None:
            data = (self._begin + data).lstrip(b"\r\n \t")
            begin = data[: len(_HEADER_START)].lower()
            if len(begin) < len(_HEADER_START) and _HEADER_START.startswith(begin):
                self._begin = data
                return []
            has_headers = begin == _HEADER_START
            self._begin = b""
            self.chosen = (ContentLengthFramer if has_headers else NewlineFramer)(self._max)
        return self.chosen.feed(data)

    def frame(self, message: bytes) -> bytes:
        """Return the bytes that carry `message` in the peer's framing."""
        return self.chosen.frame(message) if self.chosen else message + b"\n"


FRAMERS: dict[str, type[NewlineFramer | ContentLengthFramer | DetectingFramer]] = {
    "newline": NewlineFramer,
    "content-length": ContentLengthFramer,
    "detect": DetectingFramer,
}


def framer_named(name: str, max_message: int) -> Framer:
    """Return a new framer by name. Raises `ValueError` for an unknown name."""
    if name not in FRAMERS:
        known = ", ".join(f"{each!r}" for each in FRAMERS)
        raise ValueError(f"unknown framing {name!r}; use one of {known}")
    return FRAMERS[name](max_message)


def _too_long(limit: int, line: bytes = b"") -> FrameError:
    head = line[: min(limit, _HEAD)]
    return FrameError(f"message is over the limit of {limit} bytes", head)
