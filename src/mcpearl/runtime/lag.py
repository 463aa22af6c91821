"""Measures how late an event loop runs its timers."""

import asyncio
from collections import deque
from collections.abc import Callable

_INTERVAL = 0.25  # seconds between two measurements
_KEPT = 60.0  # seconds for which measurements are kept


class LoopLag:
    """Measures how late a loop runs its timers, between `start` and `stop`, if that is wanted."""

    __slots__ = ("_late", "_loop", "_timer", "also", "wanted")

    def __init__(self) -> None:
        self.wanted = False
        """Whether anything uses the measurements; otherwise no timer runs."""
        self.also: list[Callable[[], None]] = []
        """Called with each measurement, four times a second."""
        self._late: deque[tuple[float, float]] = deque(maxlen=int(_KEPT / _INTERVAL))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to measure the running loop."""
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
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def last(self) -> float:
        """How many seconds late the last timer was."""
        return self._late[-1][1] if self._late else 0.0

    def worst(self, within: float = _KEPT) -> float:
        """Return the longest delay of a timer, in seconds.

        Args:
            within: Seconds to look back, up to a minute.
        """
        if self._loop is None:
            return 0.0
        since = self._loop.time() - within
        return max((late for at, late in self._late if at >= since), default=0.0)
