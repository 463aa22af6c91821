"""The guard at the door: uvicorn's protocol with bounds on what a client may leave undone.

Uvicorn itself waits for ever for a request to begin and for a response to be read, and takes a head
of any size. What concerns bodies and streams is the endpoint's affair.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 * 1024  # bytes of a request beside its body
HEAD_TIMEOUT = 30.0  # seconds for the head of a request, and for a new connection's first one
STALLED = 60.0  # seconds in which a client that was sent something must take some of it


class GuardedProtocol(HttpToolsProtocol):
    """One connection that is lost to a client that does not do its part."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head = 0  # bytes received of the head so far
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None  # there while much waits to be read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop_timer()
        self._stop_stall_timer()

    def pause_writing(self) -> None:
        """Look from now on whether the client reads."""
        super().pause_writing()
        self._watch_buffer()

    def resume_writing(self) -> None:
        """Note that it does."""
        super().resume_writing()
        self._stop_stall_timer()

    def _watch_buffer(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALLED, self._check_buffer, waiting)

    def _check_buffer(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._watch_buffer()
        else:
            self._stall_timer = None
            self.transport.abort()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless it is too many that are no body."""
        self._head += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head == 0:
            self._stop_timer()
        elif self._head > MAX_HEAD:
            self.send_400_response("The head of the request is too large.")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def on_headers_complete(self) -> None:
        """Note that the head is whole."""
        self._head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Note that this was body."""
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that nothing is unfinished."""
        self._head = 0
        super().on_message_complete()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        cycle: Any = self.cycle  # None before the first request
        if cycle is None or cycle.response_complete:
            self.transport.close()
