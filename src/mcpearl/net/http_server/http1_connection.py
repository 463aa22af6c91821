"""The server's side of one HTTP/1.1 connection: makes requests of bytes, and bytes of responses.

It bounds how long a client may take, and how many requests may wait; the endpoint bounds bodies and
streams. A request that arrived whole is served in place, and its response is sent in one write. A head
that was seen before, byte for byte, is not parsed again.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.net.http_server.lines import status_line
from mcpearl.net.http_server.request import Head, PeerInfo, Work
from mcpearl.net.http_server.request_reader import MAX_UNREAD, RequestReader
from mcpearl.net.tls import certificate_of
from mcpearl.runtime.budget import Holding
from mcpearl.runtime.eager import spawn

if TYPE_CHECKING:
    from mcpearl.net.http_server.front import HttpFront

logger = logging.getLogger("mcpearl.http")

MAX_WAITING = 16  # requests that may wait for the one being answered before reading stops
_PAUSED = 256 * 1024  # about as many bytes as were read before reading stopped: those of one read
_ENDING = "The server is shutting down"
_GIVEN_UP = "The server has no room for what this client does not read; try again later"
_END_OF_HEAD = b"\r\n\r\n"


class HttpServerConnection(RequestReader):
    """One connection of a front."""

    __slots__ = (
        "_connections",
        "_farewell",
        "_heads",
        "_last_head",
        "_make_request",
        "_paused_holding",
        "_peer",
        "_reading",
        "_served",
        "_waiting",
        "batch",
        "charged",
        "received",
    )

    def __init__(self, front: "HttpFront") -> None:
        super().__init__(front)
        self.batch = front.batch
        self._heads = front.heads
        self._last_head: Head | None = None  # most clients repeat it, apart from the body
        self._make_request = front.request_type
        self._connections = front.connections
        self._peer: PeerInfo | None = None
        self.charged: Holding | None = None
        """What the connection itself is charged."""
        self.received = 0
        """Bytes that were read."""
        self._reading = True
        self._paused_holding: Holding | None = None  # of what was read before reading stopped
        self._waiting: deque[Http1Request] | None = None  # they wait for the one being answered
        self._served = False  # a request was served since data last arrived
        self._farewell: bytes | None = None  # to be sent when everything is answered

    # The connection

    @property
    def busy(self) -> bool:
        """Whether requests are in hand."""
        return bool(self._current or self._waiting or self._coming)

    @property
    def has_begun(self) -> bool:
        """Whether a part of a head has arrived."""
        return self._head_size > 0

    @property
    def peer(self) -> PeerInfo:
        """How the client reached the server."""
        if self._peer is None:
            info = self.transport.get_extra_info
            address = info("peername")
            self._peer = PeerInfo(
                "http" if info("sslcontext") is None else "https",
                address[:2] if isinstance(address, tuple) else None,
                certificate_of(self.transport),
            )
        return self._peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._connections.add(self)
        if self.front.is_draining:
            self.close()  # it was accepted before the port was closed
        else:
            self._surplus = self.front.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and notify the request being answered."""
        super().connection_lost(exc)
        self._leave()

    def _leave(self) -> None:
        self.front.leave(self)
        for holding in (self._head_holding, self._paused_holding):
            if holding is not None:
                holding.release()
        self._deaf = True
        current, self._current, self._coming, self._waiting = self._current, None, None, None
        if current is not None:
            current.lose()

    def shutdown(self) -> None:
        """Close the connection when the requests in hand are answered."""
        last = self._coming or (self._waiting[-1] if self._waiting else self._current)
        if last is None:
            self.close()
        else:
            self._deaf = last is not self._coming and last.is_whole
            last.keep_alive = False

    def write(self, data: bytes) -> None:
        """Send bytes: now, or with the other responses of this iteration."""
        if self.batch.collecting:
            self.batch.put((self.transport, data))
        else:
            self.front.sent_alone += len(data)
            self.transport.write(data)

    def close(self) -> None:
        """Close when everything is sent; drop a client that does not read it."""
        if self.batch.collecting:
            self.batch.flush()
        super().close()

    # Receiving

    def data_received(self, data: bytes) -> None:
        """Take bytes: a request whose head is known, or anything else for the parser."""
        size = len(data)
        self.received += size
        if self._deaf:
            return
        if self._between:
            head = self._last_head
            if head is None or not data.startswith(head.raw):
                head = self._last_head = self._heads.get(data[: data.find(_END_OF_HEAD) + 4])
            if head is not None and size == head.size:
                make = self._make_request  # calling a local name is faster than calling a slot
                request = make(self, head, data[head.end :], True)
                if self._head_timer is not None:
                    self.stop_waiting()
                    self._head_size = 0  # blank lines were counted
                self._served = False
                self._arrived(request)
                return
        self._head_size += size
        self._served = False
        self._parse(data)

    def _request_of(self, head: Head) -> Http1Request:
        return self._make_request(self, head, None, False, head.keep_alive)

    def _arrived(self, request: Http1Request) -> None:
        """Serve a whole request; while another one is being answered, it waits."""
        if self._current is not None or self._served or self._waiting:
            self._queue(request)
            return
        self._served = True  # one per read, so that other connections have their turn
        if len(self._connections) == 1:
            self.begin(request)
        elif not (self._surplus and self._is_crowded()):
            self._current = request
            self.batch.add(request, self.loop)

    def _begin_early(self) -> None:
        """Serve a request whose body is still arriving; the endpoint bounds how long that may take."""
        request = self._coming
        assert request is not None
        if self._current is None and not self._waiting:
            self._coming = None
            self.begin(request)
        elif request.unread > MAX_UNREAD:
            self._pause()

    def _is_crowded(self) -> bool:
        """Refuse the first request of a surplus connection, unless there is room by now."""
        reason = self.front.refusal_of(self)
        if reason is None:
            self._surplus = False
        else:
            self.refuse(503, reason, b"retry-after: 1\r\n")
        return self._surplus

    # Answering

    def begin(self, request: Http1Request) -> None:
        """Serve a request now. If it has to wait for something, a task does the rest."""
        self._current = request
        try:
            rest = self.front.endpoint.serve(request)
        except BaseException as error:
            self._fail(request, error)
            return
        if rest is None:
            if not (request.complete or request.gone):
                self._end_unanswered(request)
            return
        task = spawn(self.loop, self._serve(request, rest))
        if not task.done():
            request.waits()
            self.front.tasks.add(task)
            task.add_done_callback(self.front.tasks.discard)

    async def _serve(self, request: Http1Request, rest: Work) -> None:
        try:
            await rest
        except BaseException as error:
            self._fail(request, error)
        if not (request.complete or request.gone):
            self._end_unanswered(request)

    def _fail(self, request: Http1Request, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            request.fail(503, _ENDING if self.front.is_draining else _GIVEN_UP)
        else:
            logger.error("a request could not be answered", exc_info=error)
            request.fail(500, "Internal error")

    def _end_unanswered(self, request: Http1Request) -> None:
        """Answer a request that was not answered; this also ends a stream that is not read."""
        request.fail(500, "The server did not answer this request")

    def _queue(self, request: Http1Request) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(request)
        if len(self._waiting) >= MAX_WAITING:
            self._pause()
        if self._current is None:
            self.loop.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        if self._current is not None or self.transport.is_closing():
            return
        if self._waiting:
            request = self._waiting.popleft()
            if self.batch.in_turns:
                self._current = request
                self.batch.add(request, self.loop)
            else:
                self.begin(request)
        elif self._coming is not None:
            self._begin_early()

    def answered(self, request: Http1Request) -> None:
        """Begin the next request; without one, the connection is idle."""
        if request is not self._current:
            return
        self._current = None
        if not request.keep_alive:
            self.close()
            return
        if self._waiting or self._coming is not None:
            self.loop.call_soon(self._begin_next)
        elif self._farewell is not None:
            self._say_farewell()
            return
        if not self._reading:
            self.resume()
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self.watch_idle()

    def refuse(self, status: int, reason: str, headers: bytes = b"") -> None:
        """Send an error after the responses of earlier requests, and close the connection."""
        if self._deaf or self.transport.is_closing():
            return
        self._deaf = True
        if self.front.refused is not None:
            self.front.refused(self.peer, status, reason)
        text = reason.encode()
        self._farewell = (
            b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n%b"
            b"connection: close\r\n\r\n%b" % (status_line(status), len(text), headers, text)
        )
        self._coming = None
        current = self._current
        if current is not None and not current.is_whole:
            self._current = None  # its body will never be complete
            current.lose()
            if current.has_begun:
                self.close()
                return
        if self._current is None and not self._waiting:
            self._say_farewell()

    def _say_farewell(self) -> None:
        assert self._farewell is not None
        self.write(self._farewell)
        self.close()

    # Flow

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.pause_reading()
            if self._paused_holding is None:
                self._paused_holding = self.account.open("requests")
            if not self._paused_holding.resize(_PAUSED) and self._waiting:
                self.refuse(503, self.account.refusal, b"retry-after: 1\r\n")

    def resume(self) -> None:
        """Read on, unless enough requests wait."""
        full = self._waiting is not None and len(self._waiting) >= MAX_WAITING
        if not (self._reading or full):
            self._reading = True
            if self._paused_holding is not None:
                self._paused_holding.release()
            self.transport.resume_reading()
