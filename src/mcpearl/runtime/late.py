"""One timer for many short things of which only the few that take long matter.

A timer per request costs more than most requests. Here adding and removing are one dictionary
operation each, and whoever is still there after one to two ticks is told so, once.
"""

import asyncio
from typing import Protocol


class Late(Protocol):
    """Something that may take long."""

    def late(self) -> None:
        """Note that it does."""
        ...


class LateWatch:
    """Those under way."""

    __slots__ = ("_earlier", "_newer", "_tick", "_timer")

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._newer: dict[Late, None] = {}  # added since the timer last ran
        self._earlier: dict[Late, None] = {}  # and before that
        self._timer: asyncio.TimerHandle | None = None  # there while anybody is

    def __len__(self) -> int:
        return len(self._newer) + len(self._earlier)

    def add(self, lingerer: Late) -> None:
        """Watch one that has just begun."""
        self._newer[lingerer] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)

    def discard(self, lingerer: Late) -> None:
        """Note that one is over; it may have been told that it is late."""
        if lingerer in self._newer:
            del self._newer[lingerer]
        else:
            self._earlier.pop(lingerer, None)

    def stop(self) -> None:
        """Tell nobody any more, until somebody is added."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        late, self._earlier, self._newer = self._earlier, self._newer, {}
        self._timer = None
        if self._earlier:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)
        for lingerer in late:
            lingerer.late()
