"""Whether an event loop keeps up: how long it has been since it last came round to its timers."""

import asyncio


class LagWatch:
    """Watches a loop between `start` and `stop`.

    Args:
        limit: Seconds one turn of the loop may take.
    """

    __slots__ = ("_due", "_interval", "_limit", "_now", "_timer")

    def __init__(self, limit: float) -> None:
        if limit <= 0:
            raise ValueError("a loop needs some time for each turn")
        self._limit = limit
        self._interval = limit / 4
        self._due = float("inf")  # when a timer is overdue by more than the limit
        self._timer: asyncio.TimerHandle | None = None
        self._now = asyncio.get_running_loop().time

    def start(self) -> None:
        """Begin to watch the running loop."""
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._tick(loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = self._now() + self._interval + self._limit
        self._timer = loop.call_later(self._interval, self._tick, loop)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = float("inf")

    @property
    def is_behind(self) -> bool:
        """Whether this turn of the loop has taken too long already."""
        return self._now() > self._due
