"""The frames between a server and its isolated processes.

A frame is a mark, a length, a kind and the payload. The mark is a random value for each process: if a
tool writes to a descriptor that is not its own, that is not taken for a frame. Nothing here does any I/O.
"""

import struct
from enum import IntEnum

_HEAD = struct.Struct("<4sIB")
HEAD_SIZE = _HEAD.size


class Kind(IntEnum):
    """What a frame is. The first two go to the process, the others come from it."""

    CALL = 1
    REPLY = 2
    """The answer to an `ASK`."""
    READY = 3
    """The process can take calls."""
    RESULT = 4
    """The call has ended with this result."""
    FAILURE = 5
    """The call has failed."""
    LAST = 6
    """The call has failed in a way that the process does not survive."""
    UNUSABLE = 7
    """The process cannot take calls, and why."""
    TELL = 8
    """A notification from the call, which is not answered."""
    ASK = 9
    """A question from the call, which a `REPLY` answers."""


_KINDS = frozenset(map(int, Kind))
FROM_PROCESS = _KINDS - {Kind.CALL, Kind.REPLY}
FINAL = frozenset(map(int, (Kind.RESULT, Kind.FAILURE, Kind.LAST)))


class Garbled(Exception):
    """The data that was read is not a frame."""


def frame(mark: bytes, kind: int, payload: bytes) -> bytes:
    """Return a frame."""
    return _HEAD.pack(mark, len(payload), kind) + payload


class FrameReader:
    """Splits the data that was read into frames.

    Args:
        mark: The mark of the process.
        longest: Bytes a payload may have.
        kinds: The kinds that are expected.
    """

    __slots__ = ("_buffer", "_kinds", "_longest", "_mark")

    def __init__(self, mark: bytes, longest: int, kinds: frozenset[int] = _KINDS) -> None:
        self._mark = mark
        self._longest = longest
        self._kinds = kinds
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take data that was read; return the frames that are complete, each as kind and payload.

        Raises:
            Garbled: The data is not a frame, or the frame is longer than allowed.
        """
        if not self._buffer and len(data) >= HEAD_SIZE:  # the usual case: one frame, whole
            mark, length, kind = _HEAD.unpack_from(data)
            if (
                len(data) == HEAD_SIZE + length <= self._longest
                and mark == self._mark
                and kind in self._kinds
            ):
                return [(kind, data[HEAD_SIZE:])]
        self._buffer += data
        return self._cut()

    def _cut(self) -> list[tuple[int, bytes]]:
        buffer, found, at = self._buffer, [], 0
        while len(buffer) - at >= HEAD_SIZE:
            length, kind = self._check(buffer, at)
            end = at + HEAD_SIZE + length
            if len(buffer) < end:
                break
            found.append((kind, bytes(buffer[at + HEAD_SIZE : end])))
            at = end
        del buffer[:at]
        return found

    def _check(self, data: bytes | bytearray, at: int = 0) -> tuple[int, int]:
        mark, length, kind = _HEAD.unpack_from(data, at)
        if mark != self._mark or kind not in self._kinds:
            raise Garbled("wrote something to its connection that is not a message")
        if length > self._longest:
            raise Garbled(f"wrote a message of {length} bytes, over the {self._longest} it may")
        return length, kind
