"""Bulkheads: a limit on how many tasks are inside at once, and on how many wait; others are refused."""

import asyncio
from types import TracebackType


class BulkheadFull(RuntimeError):
    """No more tasks may be inside, and no more may wait."""


class Bulkhead:
    """Lets a limited number of tasks in at once, in the order in which they came.

    >>> database = Bulkhead(4, queue=100)
    >>> async with database:
    ...     await query()

    Args:
        limit: How many may be inside.
        queue: How many may wait; one more gets `BulkheadFull`.
        name: What it protects, for error messages.
    """

    __slots__ = ("_queue", "_waiting", "inside", "limit", "name")

    def __init__(self, limit: int, queue: int = 100, name: str = "the bulkhead") -> None:
        if limit < 1 or queue < 0:
            raise ValueError("a bulkhead lets at least 1 in, and its queue is not below 0")
        self.limit = limit
        self.name = name
        self.inside = 0
        """How many are inside, including those that are about to enter."""
        self._queue = queue
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order in which they came

    @property
    def waiting(self) -> int:
        """How many wait to enter."""
        return len(self._waiting)

    async def enter(self) -> None:
        """Wait for a place and take it.

        Raises:
            BulkheadFull: Too many wait already.
        """
        if self.inside < self.limit:
            self.inside += 1
            return
        if len(self._waiting) >= self._queue:
            raise BulkheadFull(
                f"{self.name} has {self.limit} calls in hand and {self._queue} waiting already"
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.pop(turn, None)
            else:
                self.leave()  # the place came together with the cancellation
            raise

    def leave(self) -> None:
        """Leave; the task that has waited longest gets the place."""
        while self._waiting:
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            if not turn.done():  # it was not cancelled a moment ago
                turn.set_result(None)
                return
        self.inside -= 1

    async def __aenter__(self) -> "Bulkhead":
        await self.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.leave()
