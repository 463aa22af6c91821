"""The order in which messages leave, although each has a POST of its own.

Requests leave at once, a bounded number at a time. A notification leaves after the requests before it
that have a connection; `deliveries` keeps notifications in order among themselves. No request of a
legacy session leaves before its `notifications/initialized` was delivered.
"""

import asyncio
from collections.abc import Hashable


class SendOrder:
    """The order of one transport's messages. A request is any object, told apart by identity."""

    def __init__(self, max_requests: int) -> None:
        self._max = max_requests
        self._under_way: set[Hashable] = set()  # requests that count against `max_requests`
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}  # requests beyond that
        # Requests that later notifications have to wait for, with a future once one waits for it.
        self._unsent: dict[Hashable, asyncio.Future[None] | None] = {}
        self.opening: asyncio.Future[None] | None = None
        """Done when `notifications/initialized` was delivered; None again once a request saw that."""

    # Requests

    def enter(self, request: Hashable, *, lasts: bool) -> "asyncio.Future[None] | None":
        """Take a request; return a future that it has to wait for if too many are under way.

        Args:
            request: The request.
            lasts: Whether it is a subscription, which must not block calls.
        """
        if not lasts:
            if len(self._under_way) >= self._max and request not in self._under_way:
                waiter = self._waiting[request] = asyncio.get_running_loop().create_future()
                return waiter
            self._under_way.add(request)
        self._unsent[request] = None
        return None

    def leaves_now(self, request: Hashable) -> bool:
        """Take a request that will be sent at once; return False if it has to wait its turn.

        No notification waits for it. A request that cannot be sent at once after all has to `enter`.
        """
        if self.opening is not None or len(self._under_way) >= self._max:
            return False
        self._under_way.add(request)
        return True

    def left(self, request: Hashable) -> None:
        """Let later notifications pass: the request has left, or never will."""
        waiter = self._unsent.pop(request, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def leave(self, request: Hashable) -> None:
        """Forget a request that is over, even if it never left."""
        if request in self._unsent:
            self.left(request)
        if self._waiting:
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

    def open_session(self) -> "asyncio.Future[None]":
        """Make requests wait until the returned future is done."""
        self.opening = asyncio.get_running_loop().create_future()
        return self.opening

    async def opened(self) -> None:
        """Wait until the legacy session that is being opened is open."""
        opening = self.opening
        if opening is not None and not opening.done():
            await asyncio.wait([opening])
        if opening is self.opening:
            self.opening = None

    # Notifications

    def predecessors(self) -> "list[asyncio.Future[None]]":
        """Return a future for each request that has to leave before a notification sent now."""
        loop = asyncio.get_running_loop()
        for request, waiter in self._unsent.items():
            if waiter is None:
                self._unsent[request] = loop.create_future()
        return [*filter(None, self._unsent.values())]
