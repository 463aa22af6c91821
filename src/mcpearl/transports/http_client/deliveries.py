"""Messages that get no answer: notifications are sent one by one, answers several at once.

A server that asks faster than it takes the answers fills the queue of answers. While the queue is full,
the transport hands on nothing, since that would make the queue longer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_client.exchange import PostExchange

_ANSWERS_AT_ONCE = 16
_FULL = 0.25  # share of `Limits.max_outgoing` from which on nothing more is read


class Deliveries:
    """The messages of one transport that wait for an exchange, and the tasks that deliver them.

    Args:
        limits: `max_in_flight` bounds the answers that wait, `max_outgoing` the bytes.
        begin: Starts a task.
        deliver: Sends one message, and returns when the server took it or it cannot be delivered.
        overflowed: Called when too many bytes wait.
    """

    def __init__(
        self,
        limits: Limits,
        begin: Callable[[Coroutine[Any, Any, None]], None],
        deliver: Callable[[PostExchange], Awaitable[None]],
        overflowed: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._begin = begin
        self._deliver = deliver
        self._overflowed = overflowed
        self._answers: deque[PostExchange] = deque()
        # Notifications, each with the requests that have to leave before it.
        self._notices: deque[tuple[PostExchange, list[asyncio.Future[None]]]] = deque()
        self._size = 0  # bytes of both
        self._answering = 0  # tasks that deliver answers
        self._notifying = False  # whether a task delivers notifications
        self.has_room = True
        """Whether the server may cause more answers."""
        self._room = asyncio.Event()
        self._room.set()

    async def room(self) -> None:
        """Wait until the server may cause more answers."""
        await self._room.wait()

    def answer(self, answer: PostExchange) -> None:
        """Deliver an answer as soon as an exchange is free."""
        self._answers.append(answer)
        self._added(answer)
        if self._answering < _ANSWERS_AT_ONCE:
            self._answering += 1
            self._begin(self._deliver_answers())

    def notify(self, notice: PostExchange, after: "list[asyncio.Future[None]]") -> None:
        """Deliver a notification after those before it.

        Args:
            notice: The notification.
            after: Done when the requests that precede the notification have left.
        """
        self._notices.append((notice, after))
        self._added(notice)
        if not self._notifying:
            self._notifying = True
            self._begin(self._deliver_notices())

    def clear(self) -> None:
        """Drop what waits: the connection is over."""
        self._answers.clear()
        self._notices.clear()
        self._size = 0

    async def _deliver_answers(self) -> None:
        while self._answers:
            answer = self._answers.popleft()
            self._removed(answer)
            await self._deliver(answer)
        self._answering -= 1

    async def _deliver_notices(self) -> None:
        while self._notices:
            notice, after = self._notices.popleft()
            self._removed(notice)
            for request in after:
                if not request.done():
                    await asyncio.wait([request])
            await self._deliver(notice)
        self._notifying = False

    def _added(self, message: PostExchange) -> None:
        self._size += len(message.message)
        if self._is_full:
            self.has_room = False
            self._room.clear()
            if self._size > self._limits.max_outgoing:
                self._overflowed()

    def _removed(self, message: PostExchange) -> None:
        self._size -= len(message.message)
        if not self.has_room and not self._is_full:
            self.has_room = True
            self._room.set()

    @property
    def _is_full(self) -> bool:
        limits = self._limits
        return len(self._answers) > limits.max_in_flight or self._size > limits.max_outgoing * _FULL
