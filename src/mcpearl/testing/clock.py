"""Time that a test moves: the wall clock, monotonic time and the timers of event loops together."""

import asyncio
import os
import time
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from mcpearl.runtime import clock
from mcpearl.runtime.clock import SystemSource

_TURNS = 30  # of the loop, in which sockets and tasks do what a timer made them do
_Loop: Any = asyncio.BaseEventLoop
_loop_time = _Loop.time
# How far the time of each moved loop is ahead: its timers still have to fall due after the test.
_moved: WeakKeyDictionary[Any, float] = WeakKeyDictionary()


class MovableClock:
    """Time that can be advanced, for everything in the process that asks mcpearl or asyncio for it.

    Sockets and processes go on working. Timers are those of asyncio's own event loops; uvloop has its own
    time, which cannot be moved.

    >>> with MovableClock() as clock:
    ...     await clock.advance(3600)        # whatever is due within an hour happens now
    """

    random_bytes = staticmethod(os.urandom)

    def __init__(self) -> None:
        self._ahead = 0.0
        self._loops: WeakKeyDictionary[Any, float] = WeakKeyDictionary()  # that it moved

    def now(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return time.time() + self._ahead

    def monotonic(self) -> float:
        """Return the monotonic time, in seconds."""
        return time.monotonic() + self._ahead

    def __enter__(self) -> Self:
        clock.use(self)
        # On the class: a loop may have been made already, and others may be made later.
        _Loop.time = lambda loop: self._time_of(loop)
        return self

    def _time_of(self, loop: Any) -> float:
        self._loops[loop] = before = _moved.get(loop, 0.0)
        return float(_loop_time(loop)) + before + self._ahead

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for loop, before in self._loops.items():
            _moved[loop] = before + self._ahead
        _Loop.time = _time_after
        clock.use(SystemSource)

    def move(self, seconds: float) -> None:
        """Set every clock forward at once. Timers that became due run when their loop turns.

        Args:
            seconds: How far.
        """
        self._ahead += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass: each timer of the running loop that falls due runs at its time, in order.

        Before the first and between any two, the loop turns a few times: what was just started sets its
        timers, and what a timer caused comes about.

        Args:
            seconds: How far.
        """
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.BaseEventLoop):
            raise TypeError(
                f"the time of a {type(loop).__module__}.{type(loop).__name__} cannot be moved; "
                "run the test on asyncio's own event loop"
            )
        await _turn()
        end = loop.time() + seconds
        while (due := next_timer(loop)) is not None and due <= end:
            self.move(max(0.0, due - loop.time()))
            await _turn()
        self.move(max(0.0, end - loop.time()))
        await _turn()


def _time_after(loop: Any) -> float:
    """Return the time of a loop after a clock was moved: it never goes back."""
    return float(_loop_time(loop)) + _moved.get(loop, 0.0)


def next_timer(loop: asyncio.BaseEventLoop) -> float | None:
    """Return when the next timer of a loop is due, in its time; None when it has none.

    Args:
        loop: One of asyncio's own loops.
    """
    inner: Any = loop
    timers: list[asyncio.TimerHandle] = inner._scheduled
    return min((each.when() for each in timers if not each.cancelled()), default=None)


async def _turn() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
