"""Saying something at most once per interval without ever losing the last time it was true."""

import asyncio
from collections.abc import Callable


class Coalescer:
    """Turns many `poke`s into few calls of `fire`: one now, and one after the interval if needed."""

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
        self._fire()
        self._handle = loop.call_later(self.interval, self._elapsed, loop)

    def _elapsed(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = None
        if self._again:
            self._again = False
            self.poke(loop)

    def flush(self) -> None:
        """Say now what would have been said later."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._again:
            self._again = False
            self._fire()
