"""How long a connection waits for its client to send a request, and how long it may be idle.

A connection has a timer for each of these, and none that is set anew with each request. How long a client
may take to read is decided in `Unread`.
"""

import asyncio
import logging

from mcpearl.net.unread import Unread
from mcpearl.runtime.budget import UNCOUNTED, Account

logger = logging.getLogger("mcpearl.http")

STALL_TIMEOUT = 60.0  # seconds in which a client must read some of what it was sent
HEAD_TIMEOUT = 30.0  # seconds for the head of a request, and for a new connection's first one


class TimedProtocol(asyncio.Protocol):
    """One connection, which is closed when its client does not send or read in time."""

    __slots__ = (
        "_head_timer",
        "_idle_since",
        "_idle_timer",
        "_keep_alive",
        "_stall_timeout",
        "_unread",
        "account",
        "loop",
        "transport",
        "writable",
    )

    transport: asyncio.Transport
    account: Account
    """Counts what is held for the client."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, keep_alive: float, stall_timeout: float
    ) -> None:
        self.loop = loop
        self.writable: asyncio.Event | None = None
        """Set when the client has caught up; None while it keeps up."""
        self._keep_alive = keep_alive  # seconds without a request
        self._stall_timeout = stall_timeout
        self._head_timer: asyncio.TimerHandle | None = None  # runs while a head is awaited
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._unread: Unread | None = None  # only while the client has much to read

    @property
    def busy(self) -> bool:
        """Whether requests are in hand."""
        raise NotImplementedError

    @property
    def has_begun(self) -> bool:
        """Whether a part of a head has arrived."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(UNCOUNTED)
        self.await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        for timer in (self._head_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._idle_timer = None
        self._stop_counting()
        self._flow()

    def close(self) -> None:
        """Close when everything is sent; drop a client that does not read it."""
        if not self.transport.is_closing():  # asyncio's TLS transport must not be closed twice
            self.transport.close()
        if self.transport.get_write_buffer_size():
            self._count_unread()

    # Requests

    def await_head(self) -> None:
        """Bound the time until the head of a request is complete."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def stop_waiting(self) -> None:
        """Note that no head is awaited."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self.busy:
            self.await_head()  # a client that waits for a response may take its time
        else:
            self.close()

    def watch_idle(self) -> None:
        """Close the connection unless a request comes."""
        self._idle_timer = self.loop.call_later(self._keep_alive, self._check_idle)

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self.busy:
            return  # the timer is set again when the request is answered
        left = self._idle_since + self._keep_alive - self.loop.time()
        if self.has_begun:
            left = self._keep_alive  # the head's own timer runs
        if left <= 0:
            self.close()
        else:
            self._idle_timer = self.loop.call_later(left, self._check_idle)

    # Reading

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        while self.writable is not None:
            await self.writable.wait()

    def pause_writing(self) -> None:
        """Note that the client has much to read, and watch whether it does."""
        self.writable = self.writable or asyncio.Event()
        self._count_unread()

    def resume_writing(self) -> None:
        """Note that the client has caught up."""
        self._flow()
        if not self.transport.is_closing():
            self._stop_counting()

    def _flow(self) -> None:
        if self.writable is not None:
            self.writable.set()
            self.writable = None

    def _count_unread(self) -> None:
        if self._unread is None:
            waiting = self.transport.get_write_buffer_size
            # Nothing more is written while the client has much to read, so what was written is constant.
            patience = self._stall_timeout
            self._unread = Unread(self.account, patience, waiting, lambda: 0, self._drop)
            self._unread.count()

    def _stop_counting(self) -> None:
        if self._unread is not None:
            self._unread.close()
            self._unread = None

    def _drop(self, reason: str) -> None:
        logger.warning("a client was dropped: %s", reason)
        self.transport.abort()
