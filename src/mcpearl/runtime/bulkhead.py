"""Bulkheads: a limit on how many tasks are inside at once, and on how many wait; others are refused."""

import asyncio
from collections.abc import Hashable
from types import TracebackType

from mcpearl.runtime.turns import Turns


class BulkheadFull(RuntimeError):
    """No more tasks may be inside, and no more may wait."""


class Bulkhead:
    """Lets a limited number of tasks in at once, in the order in which they came.

    Tasks that enter with a key, such as the client that they work for, share the places by key: the next
    free place is for the key that has the fewest tasks inside; keys with equally many take turns. While
    the queue is full, each key has an equal share of it too: a task of a key with fewer waiting takes the
    place of the last one of the key with most.

    >>> database = Bulkhead(4, queue=100)
    >>> async with database:
    ...     await query()

    Args:
        limit: How many may be inside.
        queue: How many may wait; one more gets `BulkheadFull`.
        name: What it protects, for error messages.
    """

    __slots__ = ("_held", "_queue", "_waiting", "inside", "limit", "name")

    def __init__(self, limit: int, queue: int = 100, name: str = "the bulkhead") -> None:
        if limit < 1 or queue < 0:
            raise ValueError("a bulkhead lets at least 1 in, and its queue is not below 0")
        self.limit = limit
        self.name = name
        self.inside = 0
        """How many are inside, including those that are about to enter."""
        self._queue = queue
        self._held: dict[Hashable, int] = {}  # how many of each key are inside
        self._waiting: Turns[tuple[asyncio.Future[None], Hashable]] = Turns()

    @property
    def waiting(self) -> int:
        """How many wait to enter."""
        return self._waiting.count

    async def enter(self, key: Hashable = None) -> None:
        """Wait for a place and take it.

        Args:
            key: Those with the same key share their places. `leave` needs the same one.

        Raises:
            BulkheadFull: Too many wait already, or a task of another key needed the place in the queue.
        """
        if self.inside < self.limit:
            self.inside += 1
            self._held[key] = self._held.get(key, 0) + 1
            return
        if self._waiting.count >= self._queue:
            self._make_room(key)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add((turn, key), key)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove((turn, key), key)
            elif turn.exception() is None:
                self.leave(key)  # the place came together with the cancellation
            raise

    def _make_room(self, key: Hashable) -> None:
        full = f"{self.name} has {self.limit} calls in hand and {self._queue} waiting already"
        last = self._waiting.make_room(key)
        if last is None:
            raise BulkheadFull(full)
        if not last[0].done():  # it was not cancelled a moment ago
            last[0].set_exception(BulkheadFull(f"{full}, and others have fewer of them"))

    def leave(self, key: Hashable = None) -> None:
        """Leave; the task whose turn it is gets the place.

        Args:
            key: What `enter` was called with.
        """
        held = self._held
        if key not in held:
            raise RuntimeError(f"no task is in {self.name} with the key {key!r}")
        if held[key] == 1:
            del held[key]
        else:
            held[key] -= 1
        while (taken := self._waiting.take(held)) is not None:
            turn, key = taken
            if not turn.done():  # it was not cancelled a moment ago
                held[key] = held.get(key, 0) + 1
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
