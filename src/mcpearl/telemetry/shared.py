"""The numbers of all workers, in memory that was mapped before they were forked.

Each worker has a place of its own, in which it leaves its snapshot once a second; the worker that is
asked adds them up. A place outlives its worker: the next one goes on counting from there. A place has two
halves, of which one is valid: a worker that dies while it writes leaves the other.
"""

import mmap
import struct
import zlib

import msgspec

from mcpearl.runtime import clock
from mcpearl.telemetry.metrics import MetricsSnapshot

HALF = 2 * 1024 * 1024  # bytes of a snapshot at most; memory is used only as far as it is written
_FRESH = 5.0  # seconds without a snapshot after which a worker counts as gone
_HEAD = struct.Struct("<IId")  # length, checksum, time of writing
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(MetricsSnapshot)


class SharedSnapshots:
    """The places of all workers.

    Args:
        count: How many workers.
        half: Bytes a snapshot may have.
    """

    def __init__(self, count: int, half: int = HALF) -> None:
        self._count = count
        self._half = half
        self._place = 1 + 2 * half
        self._memory = mmap.mmap(-1, count * self._place)

    def write(self, number: int, snapshot: MetricsSnapshot) -> bool:
        """Leave a worker's snapshot in its place; return False if it is too large."""
        data = _encoder.encode(snapshot)
        if len(data) > self._half - _HEAD.size:
            return False
        start = number * self._place
        other = 1 - self._memory[start]
        at = start + 1 + other * self._half
        head = _HEAD.pack(len(data), zlib.crc32(data), clock.monotonic())
        self._memory[at : at + _HEAD.size + len(data)] = head + data
        self._memory[start] = other
        return True

    def read(self, number: int) -> tuple[MetricsSnapshot, bool] | None:
        """Return what a worker left, and whether it is still there; None if it left nothing yet."""
        start = number * self._place
        for _ in range(2):  # it may have written meanwhile
            at = start + 1 + self._memory[start] * self._half
            length, checksum, written = _HEAD.unpack_from(self._memory, at)
            data = self._memory[at + _HEAD.size : at + _HEAD.size + length]
            if length and zlib.crc32(data) == checksum:
                return _decoder.decode(data), clock.monotonic() - written < _FRESH
        return None

    def others(self, number: int) -> list[tuple[MetricsSnapshot, bool]]:
        """Return what all workers but one left."""
        found = (self.read(each) for each in range(self._count) if each != number)
        return [each for each in found if each is not None]
