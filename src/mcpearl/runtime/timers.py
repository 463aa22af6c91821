"""Timers of a loop: one timer for many deadlines, and a timeout that can be paused."""

import asyncio
from collections.abc import Callable
from math import inf


class DeadlineTimer:
    """Calls `expire(now)` when a deadline is due; `expire` returns the next deadline, or None."""

    __slots__ = ("_due", "_expire", "_handle", "_loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, expire: Callable[[float], float | None]
    ) -> None:
        self._loop = loop
        self._expire = expire
        self._due = inf  # the time the timer is set for
        self._handle: asyncio.TimerHandle | None = None

    def at_latest(self, deadline: float) -> None:
        """Make sure the timer runs by `deadline`."""
        if deadline < self._due:
            if self._handle is not None:
                self._handle.cancel()
            self._due = deadline
            self._handle = self._loop.call_at(deadline, self._run)

    def _run(self) -> None:
        self._handle = None
        self._due = inf
        following = self._expire(self._loop.time())
        if following is not None:
            self.at_latest(following)

    def cancel(self) -> None:
        """Cancel the timer for good: later deadlines do not set it again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._due = -inf


class HeldTimeout:
    """A timeout that is paused while it is held.

    Args:
        loop: The loop of the code that is timed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timeout: asyncio.Timeout | None = None
        self._left = 0.0  # seconds left while it is held

    def within(self, seconds: float) -> asyncio.Timeout:
        """Return the context manager that raises `TimeoutError` after `seconds`."""
        self._timeout = asyncio.timeout(seconds)
        return self._timeout

    def hold(self, holding: bool) -> None:
        """Stop the clock, or let it run again with the seconds that were left."""
        timeout, now = self._timeout, self._loop.time()
        if timeout is None or timeout.expired():
            return
        if holding:
            self._left = (timeout.when() or now) - now
        timeout.reschedule(None if holding else now + self._left)
