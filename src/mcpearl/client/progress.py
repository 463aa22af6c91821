"""Passes the progress that a server reports to the callbacks of the requests it belongs to."""

import logging
from collections.abc import Callable
from typing import Any

from mcpearl.protocol.pending import Pending, PendingRequest
from mcpearl.runtime.ordered import OrderedCalls
from mcpearl.types.base import RequestId
from mcpearl.types.progress import ProgressNotificationParams

logger = logging.getLogger("mcpearl.client")

ProgressCallback = Callable[[ProgressNotificationParams], Any]
MAX_WAITING_NOTICES = 10_000
MAX_TASKS_WITH_PROGRESS = 1_000


class ProgressFeeds:
    """The progress callbacks of one connection.

    Args:
        pending: The requests that wait for an answer; progress gives them more time.
        notices: The queue for progress of tasks, in order with other notifications.
        hold: Called with whether a queue of callbacks is full.
        now: Returns the current time.
    """

    __slots__ = ("_hold", "_notices", "_now", "_of_tasks", "_pending", "callbacks", "feeds")

    def __init__(
        self,
        pending: Pending,
        notices: OrderedCalls,
        hold: Callable[[bool], None],
        now: Callable[[], float],
    ) -> None:
        self._pending = pending
        self._notices = notices
        self._hold = hold
        self._now = now
        self._of_tasks: dict[RequestId, ProgressCallback] = {}  # of requests that became tasks
        self.callbacks: dict[int, ProgressCallback] = {}  # by request, where one was given
        self.feeds: dict[int, OrderedCalls] = {}  # by request, once there was progress

    def heard(self, params: ProgressNotificationParams) -> None:
        """Queue a call of the callback of the request that made progress."""
        token = params.progress_token
        callback = self.callbacks.get(token) if type(token) is int else None
        # Progress that was not asked for must not give a request more time.
        entry = None if callback is None else self._pending.progress(token, self._now())
        if entry is None or callback is None:
            lasting = self._of_tasks.get(token)
            if lasting is not None:
                self._notices.put(lasting, params)
            return
        feed = self.feeds.get(entry.id)
        if feed is None:
            feed = self.feeds[entry.id] = OrderedCalls(MAX_WAITING_NOTICES, self._hold)
        feed.put(callback, params)

    async def finish(self, entry: PendingRequest) -> None:
        """Wait for the callbacks of a request to finish, but not beyond its deadline."""
        if not await self.feeds[entry.id].drained(max(0.0, entry.deadline - self._now())):
            logger.warning("a progress callback of %s takes longer than its call", entry.method)

    def end(self, entry: PendingRequest) -> None:
        """Forget a request that has ended."""
        del self.callbacks[entry.id]
        feed = self.feeds.pop(entry.id, None)
        if feed is not None:
            feed.close()

    def keep(self, token: int, callback: ProgressCallback) -> None:
        """Keep calling `callback` with the progress of a request that became a task."""
        while len(self._of_tasks) >= MAX_TASKS_WITH_PROGRESS:
            self._of_tasks.pop(next(iter(self._of_tasks)))
        self._of_tasks[token] = callback

    def drop(self, token: int) -> None:
        """Stop calling the callback of a task that has ended."""
        self._of_tasks.pop(token, None)

    def close(self) -> None:
        """End every feed: the connection is closed."""
        for feed in self.feeds.values():
            feed.close()
