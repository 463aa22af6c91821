"""Time that a test moves: the wall clock, monotonic time and the event loop's timers together."""

import asyncio
import time

from mcpearl.runtime.clock import SystemSource

_TURNS = 30  # of the loop, in which sockets and tasks do what a timer made them do


class MovableLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with real sockets, whose time can be moved forward."""

    ahead = 0.0  # seconds by which its time is ahead of the real one

    def time(self) -> float:
        return super().time() + self.ahead

    def next_timer(self) -> float | None:
        """Return when the next timer is due, or None when there is none."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return min((each.when() for each in timers if not each.cancelled()), default=None)


class MovableClock:
    """What `mcpearl.runtime.clock` reads during a test with the fixture `clock`."""

    random_bytes = SystemSource.random_bytes

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        return time.time() + self._ahead

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def move(self, seconds: float) -> None:
        """Set every clock forward at once. Timers that became due run when the loop turns."""
        self._ahead += seconds
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if isinstance(loop, MovableLoop):
            loop.ahead += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass: each timer that falls due runs at its time, in order.

        Between two timers the loop turns a few times, so that what they caused comes about.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MovableLoop)
        end = loop.time() + seconds
        while (due := loop.next_timer()) is not None and due <= end:
            self.move(max(0.0, due - loop.time()))
            await _turn()
        self.move(max(0.0, end - loop.time()))
        await _turn()


async def _turn() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
