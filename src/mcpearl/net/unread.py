"""Output that a peer has not read yet: it is counted in the budget, and the peer must read it in time.

This is the one place that decides whether a peer reads. A connection whose output piles up makes an
`Unread`; it exists until the peer has caught up, and costs a timer. In every `patience` seconds the peer
has to read all that waits, or at least `SLOWEST` bytes a second. A peer that does not, or leaves more
unread than the budget has room for, is dropped.
"""

import asyncio
from collections.abc import Callable

from mcpearl.runtime.budget import UNCOUNTED, Account

DOES_NOT_READ = "the peer does not read what it is sent"
SLOWEST = 4 * 1024  # bytes a second that a peer must read at least, if so many wait
_LOOKS = 16  # checks in `patience` seconds
HIGH_WATER = 1024 * 1024
"""Unread bytes from which a sender waits."""


class Unread:
    """The unread output of one connection.

    Args:
        account: The peer's account in the budget.
        patience: Seconds in which the peer must read.
        waiting: Returns how many bytes wait.
        written: Returns how many bytes were ever written, including those that wait.
        drop: Ends the connection; called with the reason.
    """

    __slots__ = (
        "_drop",
        "_holding",
        "_loop",
        "_patience",
        "_since",
        "_taken",
        "_timer",
        "_waiting",
        "_wanted",
        "_written",
    )

    def __init__(
        self,
        account: Account,
        patience: float,
        waiting: Callable[[], int],
        written: Callable[[], int],
        drop: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._holding = account.open("answers")
        self._patience = patience
        self._waiting = waiting
        self._written = written
        self._drop = drop
        self._timer: asyncio.TimerHandle | None = None
        self._begin()
        self._schedule()

    def _begin(self) -> None:
        """Begin to measure how much the peer reads."""
        waiting = self._waiting()
        self._since = self._loop.time()
        self._taken = self._written() - waiting
        self._wanted = max(1, min(waiting, int(SLOWEST * self._patience)))

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._patience / _LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self.count():
            return
        if self._written() - self._waiting() - self._taken >= self._wanted:
            self._begin()
        elif self._loop.time() >= self._since + self._patience:
            self._end(DOES_NOT_READ)
            return
        self._schedule()

    def count(self) -> bool:
        """Count what waits now. If there is no room for it, drop the peer and return False."""
        waiting = self._waiting()
        if self._holding.resize(waiting if waiting > UNCOUNTED else 0):
            return True
        self._end(f"{DOES_NOT_READ}, and there is no room to hold more of it")
        return False

    def _end(self, reason: str) -> None:
        self.close()
        self._drop(reason)

    def close(self) -> None:
        """Stop counting and watching: the peer has caught up, or is gone."""
        self._holding.release()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def high_water(limit: int) -> int:
    """Return the mark for a peer that is dropped at `limit` unread bytes; it is well below that."""
    return min(HIGH_WATER, limit // 4)
