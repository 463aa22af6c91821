"""One timer for many pieces of work, to find the few that take a long time.

A timer per request costs more than most requests. Here adding and removing are one dictionary
operation each. Work that is still registered after one to two ticks is notified once.
"""

import asyncio
from typing import Protocol


class Late(Protocol):
    """A piece of work that may take a long time."""

    def late(self) -> None:
        """Called once, when the work is still under way after one to two ticks."""
        ...


class LateWatch:
    """The work under way.

    Args:
        tick: Seconds between two looks; work is late after one to two of them.
    """

    __slots__ = ("_earlier", "_newer", "_tick", "_timer")

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._newer: dict[Late, None] = {}  # added since the timer last ran
        self._earlier: dict[Late, None] = {}  # added in the tick before
        self._timer: asyncio.TimerHandle | None = None  # set while there is work

    def __len__(self) -> int:
        return len(self._newer) + len(self._earlier)

    def add(self, work: Late) -> None:
        """Register work that has just begun."""
        self._newer[work] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)

    def discard(self, work: Late) -> None:
        """Remove work that has ended, whether it was late or not."""
        if work in self._newer:
            del self._newer[work]
        else:
            self._earlier.pop(work, None)

    def stop(self) -> None:
        """Stop notifying until work is added."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        late, self._earlier, self._newer = self._earlier, self._newer, {}
        self._timer = None
        if self._earlier:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)
        for work in late:
            work.late()
