"""Whether an event loop keeps up: how long it has been since it last came round to its timers.

`LagWatch` compares that with a limit; `LoopLag` measures it, for those who show it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from math import inf


class LagWatch:
    """Watches a loop between `start` and `stop`.

    Args:
        limit: Seconds one turn of the loop may take.
        also: Called at every look; returns whether something else is behind, such as a pool.
    """

    __slots__ = ("_also", "_interval", "_limit", "_timer", "due", "now")

    def __init__(self, limit: float, also: Callable[[], bool]) -> None:
        if limit <= 0:
            raise ValueError("a loop needs some time for each turn")
        self._limit = limit
        self._also = also
        self._interval = limit / 4
        self._timer: asyncio.TimerHandle | None = None
        self.now = time.monotonic  # the loop's, while it is watched
        self.due = inf
        """From this time of the loop on it is behind: it should have come round to its timers."""

    def start(self) -> None:
        """Begin to watch the running loop."""
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self._look(loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.due = -inf if self._also() else self.now() + self._interval + self._limit
        self._timer = loop.call_later(self._interval, self._look, loop)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.due = inf


_INTERVAL = 0.25  # seconds between two measurements
_KEPT = 60.0  # seconds for which measurements are kept


class LoopLag:
    """Measures how late a loop comes round to its timers, between `start` and `stop`, if it is wanted."""

    __slots__ = ("_late", "_loop", "_timer", "also", "wanted")

    def __init__(self) -> None:
        self.wanted = False
        """Whether anything looks at it; otherwise no timer runs."""
        self.also: list[Callable[[], None]] = []
        """Called with each measurement, four times a second."""
        self._late: deque[tuple[float, float]] = deque(maxlen=int(_KEPT / _INTERVAL))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure the running loop."""
        if not self.wanted:
            return
        self._loop = loop = asyncio.get_running_loop()
        self._late.clear()
        self._wait(loop)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + _INTERVAL
        self._timer = loop.call_at(due, self._measure, loop, due)

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._late.append((now, max(0.0, now - due)))
        self._wait(loop)
        for look in self.also:
            look()

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def last(self) -> float:
        """How many seconds late it was the last time."""
        return self._late[-1][1] if self._late else 0.0

    def worst(self, within: float = _KEPT) -> float:
        """Return how many seconds late it was at worst.

        Args:
            within: Seconds to look back, up to a minute.
        """
        if self._loop is None:
            return 0.0
        since = self._loop.time() - within
        return max((late for at, late in self._late if at >= since), default=0.0)
