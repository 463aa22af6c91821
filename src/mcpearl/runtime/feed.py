"""Telling followers about changes: callbacks, and iterators whose readers may be slow."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

logger = logging.getLogger("mcpearl.supervisor")

C = TypeVar("C")


class Feed(Generic[C]):
    """Changes, one after the other; use it with `async for`, and `close` it.

    Changes wait until they are taken. When too many wait, the oldest are dropped. They may be put in by
    another thread than the one whose loop takes them.

    Args:
        limit: How many changes may wait.
        closed: Called when no more changes are taken.
    """

    def __init__(self, limit: int, closed: "Callable[[Feed[C]], None]") -> None:
        self.missed = 0
        """How many changes were dropped because they were not taken in time."""
        self._waiting: deque[C] = deque(maxlen=limit)
        self._closed: Callable[[Feed[C]], None] | None = closed
        self._news = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that takes the changes; None until it does."""

    def put(self, change: C) -> None:
        """Add a change."""
        if len(self._waiting) == self._waiting.maxlen:
            self.missed += 1
        self._waiting.append(change)
        self._wake()

    def _wake(self) -> None:
        loop = self.loop
        if loop is None:
            return  # it looks before it waits
        if asyncio._get_running_loop() is loop:
            self._news.set()
            return
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._news.set)

    def close(self) -> None:
        """Take no more changes."""
        if self._closed is not None:
            self._closed(self)
            self._closed = None
            self._wake()

    def __aiter__(self) -> "Feed[C]":
        return self

    async def __anext__(self) -> C:
        self.loop = asyncio.get_running_loop()  # before it looks: what is put in later wakes it
        while not self._waiting:
            if self._closed is None:
                raise StopAsyncIteration
            self._news.clear()
            if not self._waiting and self._closed is not None:
                await self._news.wait()
        return self._waiting.popleft()


class Audience(Generic[C]):
    """The followers of one thing's changes: callbacks, and iterators over changes."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[C], None]] = {}

    def __len__(self) -> int:
        return len(self._callbacks)

    def call(self, callback: Callable[[C], None]) -> Callable[[], None]:
        """Call a function with every change; return a function that ends this."""
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    def iterate(self, limit: int) -> Feed[C]:
        """Return an iterator over the changes from now on."""
        feed: Feed[C] = Feed(limit, lambda each: self._callbacks.pop(each, None) and None)
        self._callbacks[feed] = feed.put
        return feed

    def tell(self, change: C) -> None:
        """Tell all followers about a change; a callback that raises is logged."""
        for callback in tuple(self._callbacks.values()):
            try:
                callback(change)
            except Exception:
                logger.exception("a follower of the tree failed")

    def leave_to_parent(self) -> None:
        """Forget iterators that a loop takes from: this process was forked, without the loop's thread."""
        taken = [
            each for each in self._callbacks if isinstance(each, Feed) and each.loop is not None
        ]
        for feed in taken:
            del self._callbacks[feed]
