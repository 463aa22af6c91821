"""Whether an event loop keeps up: how long it has been since it last came round to its timers."""

import asyncio
import time
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
