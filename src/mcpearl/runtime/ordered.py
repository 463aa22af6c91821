"""Calling an application's callbacks one after the other, in the order of the events.

An exception of a callback is logged. While a callback runs, the others wait; when too many wait, the
source of the events is asked to pause.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("mcpearl.callbacks")


class OrderedCalls:
    """A queue of callbacks, with a worker task that exists only while there is work.

    Args:
        limit: How many calls may wait before the source is asked to pause.
        full: Called with True at the limit, and with False when at most half of that wait.
    """

    def __init__(self, limit: int, full: Callable[[bool], None]) -> None:
        self._limit = limit
        self._full = full
        self._held = False
        self._waiting: deque[tuple[Callable[[Any], Any], Any]] = deque()
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, callback: Callable[[Any], Any], value: Any) -> None:
        """Call `callback(value)` after everything put before."""
        if self._worker is None:
            pending = _call(callback, value)
            if pending is None:
                return
            self._worker = asyncio.get_running_loop().create_task(self._work(pending))
            if inspect.iscoroutine(pending):
                # A worker that is cancelled before its first step would never await the coroutine.
                self._worker.add_done_callback(lambda _: pending.close())
            return
        self._waiting.append((callback, value))
        if len(self._waiting) >= self._limit and not self._held:
            self._held = True
            self._full(True)

    async def _work(self, pending: Any) -> None:
        try:
            await _finish(pending)
            while self._waiting:
                callback, value = self._waiting.popleft()
                pending = _call(callback, value)
                if pending is not None:
                    await _finish(pending)
                if self._held and len(self._waiting) <= self._limit // 2:
                    self._held = False
                    self._full(False)
        finally:
            self._worker = None

    def skip(self) -> None:
        """Drop the calls that wait: a later event replaces them."""
        self._waiting.clear()

    async def drained(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to call; return False when that takes longer than `timeout`."""
        worker = self._worker
        if worker is None:
            return True
        done, _ = await asyncio.wait([worker], timeout=timeout)
        return bool(done)

    def close(self) -> None:
        """Drop the calls that wait and cancel the one that runs."""
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
        if self._held:
            self._held = False
            self._full(False)


def _call(callback: Callable[[Any], Any], value: Any) -> Any:
    """Call a callback; return what has to be awaited, or None."""
    try:
        result = callback(value)
    except Exception:
        logger.exception("the callback %s raised", getattr(callback, "__name__", callback))
        return None
    return result if inspect.isawaitable(result) else None


async def _finish(pending: Any) -> None:
    try:
        await pending
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        logger.warning("a callback was cancelled")  # by the application itself
    except Exception:
        logger.exception("a callback raised")
