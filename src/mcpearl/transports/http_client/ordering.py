"""The order in which messages leave, although each has a POST of its own.

Requests leave at once, a bounded number at a time. A notification leaves after the notification
before it, and after the requests before it that have a connection. Nothing else of a legacy session
leaves before its `notifications/initialized` was delivered.
"""

import asyncio
from collections.abc import Hashable
from typing import NamedTuple


class SendOrder:
    """The order of one transport's messages. A request is any object, told apart by identity."""

    def __init__(self, max_requests: int) -> None:
        self._max = max_requests
        self._under_way: set[Hashable] = set()  # requests that count against `max_requests`
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}  # requests that are too many
        # Requests that later notifications have to wait for, and what the first of those waits on.
        self._unsent: dict[Hashable, asyncio.Future[None] | None] = {}
        self._last_notice: asyncio.Task[None] | None = None
        self.opening: asyncio.Task[None] | None = None
        """The delivery of `notifications/initialized`, until a request found it done."""

    # Requests

    def enter(self, request: Hashable, *, lasts: bool) -> "asyncio.Future[None] | None":
        """Take a request; return what it has to wait for, when too many are under way.

        Args:
            request: The request.
            lasts: Whether it is a subscription, which must not block calls.
        """
        if not lasts:
            if len(self._under_way) >= self._max:
                waiter = self._waiting[request] = asyncio.get_running_loop().create_future()
                return waiter
            self._under_way.add(request)
        self._unsent[request] = None
        return None

    def left(self, request: Hashable) -> None:
        """Let later notifications pass: the request has left, or never will."""
        waiter = self._unsent.pop(request, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def leave(self, request: Hashable) -> None:
        """Forget a request that is over, even if it never left."""
        if request in self._unsent:
            self.left(request)
        self._waiting.pop(request, None)
        if request in self._under_way:
            self._under_way.remove(request)
            if self._waiting:
                self._admit_next()

    def _admit_next(self) -> None:
        for request, waiter in self._waiting.items():
            if not waiter.done():
                del self._waiting[request]
                self._under_way.add(request)
                waiter.set_result(None)
                return

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
