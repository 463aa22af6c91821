"""Whether each worker of a machine is ready, in memory that was mapped before they were forked."""

import mmap
import struct

from mcpearl.runtime import clock

_FRESH = 3.0  # seconds after which a worker that does not write counts as gone
_PLACE = struct.Struct("<d?")  # when it was written, and whether the worker is ready


class WorkerBoard:
    """One place for each worker, which only that one writes.

    Args:
        count: How many workers.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._memory = mmap.mmap(-1, count * _PLACE.size)

    def write(self, number: int, ready: bool) -> None:
        """Note whether a worker is ready."""
        _PLACE.pack_into(self._memory, number * _PLACE.size, clock.monotonic(), ready)

    def summary(self) -> dict[str, int]:
        """Return how many workers there should be, how many there are, and how many are ready."""
        now = clock.monotonic()
        places = [
            _PLACE.unpack_from(self._memory, number * _PLACE.size) for number in range(self._count)
        ]
        there = [ready for written, ready in places if written and now - written < _FRESH]
        return {"of": self._count, "alive": len(there), "ready": sum(there)}
