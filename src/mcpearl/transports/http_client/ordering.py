"""The order in which messages leave, although each has a POST of its own.

Requests leave at once, a bounded number at a time. A notification leaves after the notification
before it, and after the requests before it that have a connection. Nothing else of a legacy session
leaves before its `notifications/initialized` was delivered.
"""

import asyncio
from collections.abc import Hashable
from typing import NamedTuple


class SendOrder:
    """The order of one transport's messages. Requests are any objects, each with its own identity."""

    def __init__(self, max_requests: int) -> None:
        self.slots = asyncio.Semaphore(max_requests)
        """Held by each request while it is under way, except by subscriptions, which last."""
        self._unsent: dict[Hashable, asyncio.Future[None] | None] = {}
        # Requests that later notifications have to wait for, with what the first of those waits on.
        self._last_notice: asyncio.Task[None] | None = None
        self.opening: asyncio.Task[None] | None = None
        """The delivery of `notifications/initialized`, until a request found it done."""

    # Requests

    def enter(self, request: Hashable) -> None:
        """Note a request that is about to leave."""
        self._unsent[request] = None

    def left(self, request: Hashable) -> None:
        """Let later notifications pass: the request has left, never will, or waits for a slot."""
        waiter = self._unsent.pop(request, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def opened(self) -> None:
        """Wait until the legacy session that is being opened is open."""
        opening = self.opening
        if opening is not None and not opening.done():
            await asyncio.wait([opening])
        if opening is self.opening:
            self.opening = None

    # Notifications

    def predecessors(self) -> "Predecessors":
        """Return what a notification that is sent now has to wait for."""
        loop = asyncio.get_running_loop()
        for request, waiter in self._unsent.items():
            if waiter is None:
                self._unsent[request] = loop.create_future()
        return Predecessors(self._last_notice, [*filter(None, self._unsent.values())])

    def note(self, notice: "asyncio.Task[None]", *, opens: bool) -> None:
        """Note the delivery of a notification, and whether it opens a legacy session."""
        self._last_notice = notice
        if opens:
            self.opening = notice


class Predecessors(NamedTuple):
    """The messages that have to leave before a notification."""

    notice: "asyncio.Task[None] | None"
    requests: "list[asyncio.Future[None]]"

    async def gone(self) -> None:
        """Wait until all of them have left."""
        if self.notice is not None and not self.notice.done():
            await asyncio.wait([self.notice])
        for request in self.requests:
            if not request.done():
                await asyncio.wait([request])
