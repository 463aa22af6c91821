"""How long a connection waits for its client: to ask, to read, to come to an end.

Uvicorn waits for ever for a request to begin and for a response to be read. Here every connection has
a timer for whatever it waits for, and none that is set anew with each request.
"""

import asyncio

STALLED = 60.0  # seconds in which a client that was sent something must take some of it
HEAD_TIMEOUT = 30.0  # seconds for the head of a request, and for a new connection's first one


class TimedProtocol(asyncio.Protocol):
    """One connection, that is lost to a client that does not do its part."""

    stall_timeout = STALLED
    transport: asyncio.Transport
    _head_timer: asyncio.TimerHandle | None = None  # there while a head is awaited
    _idle_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _stall_timer: asyncio.TimerHandle | None = None  # there while the client should be reading
    _writable: asyncio.Event | None = None  # there while too much waits to be sent

    def __init__(self, loop: asyncio.AbstractEventLoop, keep_alive: float) -> None:
        self.loop = loop
        self._keep_alive = keep_alive  # seconds without a request

    @property
    def busy(self) -> bool:
        """Whether requests are in hand."""
        raise NotImplementedError

    @property
    def has_begun(self) -> bool:
        """Whether a part of a head has come."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        self.transport = transport  # type: ignore[assignment]
        self.await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        for timer in (self._head_timer, self._idle_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._idle_timer = self._stall_timer = None
        self._flow()

    def close(self) -> None:
        """Close when everything is sent, if the client takes it."""
        self.transport.close()
        if self._stall_timer is None and self.transport.get_write_buffer_size():
            self._watch_buffer()

    # Asking

    def await_head(self) -> None:
        """Wait for the rest of a head, but not for ever."""
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
            self.await_head()  # who is waiting for an answer need not be in a hurry to ask more
        else:
            self.close()

    def be_idle(self) -> None:
        """Begin to wait for the next request."""
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self._keep_alive, self._look_idle)

    def _look_idle(self) -> None:
        """Close a connection nothing has happened on for long enough."""
        self._idle_timer = None
        if self.busy:
            return  # when it is done it will be idle again
        left = self._idle_since + self._keep_alive - self.loop.time()
        if self.has_begun:
            left = self._keep_alive  # somebody else looks after that
        if left <= 0:
            self.close()
        else:
            self._idle_timer = self.loop.call_later(left, self._look_idle)

    # Reading

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be sent that no more should be written."""
        return self._writable is not None

    async def drain(self) -> None:
        """Wait until there is room for more to be written."""
        while self._writable is not None:
            await self._writable.wait()

    def pause_writing(self) -> None:
        """Look from now on whether the client reads."""
        self._writable = self._writable or asyncio.Event()
        if self._stall_timer is None:
            self._watch_buffer()

    def resume_writing(self) -> None:
        """Note that it does."""
        self._flow()
        if self._stall_timer is not None and not self.transport.is_closing():
            self._stall_timer.cancel()
            self._stall_timer = None

    def _flow(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def _watch_buffer(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self.stall_timeout, self._check_buffer, waiting)

    def _check_buffer(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._watch_buffer()
        else:
            self._stall_timer = None
            self.transport.abort()
