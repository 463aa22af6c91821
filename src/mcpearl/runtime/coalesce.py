"""Rate-limiting a notification: at most one per interval, and always one after the last change."""

import asyncio
from collections.abc import Callable


class Coalescer:
    """Turns many `poke`s into few calls of `fire`: one at once, and one per interval after it."""

    __slots__ = ("_again", "_fire", "_handle", "interval")

    def __init__(self, fire: Callable[[], None], interval: float = 0.1) -> None:
        self.interval = interval
        self._fire = fire
        self._again = False  # poked since the last call
        self._handle: asyncio.TimerHandle | None = None

    def poke(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note a change. Must be called on the loop's thread."""
        if self._handle is not None:
            self._again = True
            return
        # The timer is set first, so that a poke from inside `fire` belongs to this interval.
        self._handle = loop.call_later(self.interval, self._elapsed, loop)
        self._fire()

    def _elapsed(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = None
        if self._again:
            self._again = False
            self.poke(loop)

    def flush(self) -> None:
        """Make the call that waits for the end of the interval now, if there is one."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._again:
            self._again = False
            self._fire()
