"""The guard at the door: uvicorn's protocol with bounds on what a client may leave undone.

Uvicorn itself waits for ever for a request to begin and for a response to be read, and takes a head
of any size. What concerns bodies and streams is the endpoint's affair. Two things are done cheaper
than uvicorn does them, since every request pays for them: the head of a response leaves with its body,
and the time a connection may be idle is watched by one timer, not a new one after each response.
"""

import asyncio
import ssl
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

MAX_HEAD = 64 * 1024  # bytes of a request beside its body
HEAD_TIMEOUT = 30.0  # seconds for the head of a request, and for a new connection's first one
STALLED = 60.0  # seconds in which a client that was sent something must take some of it


class GuardedProtocol(HttpToolsProtocol):
    """One connection that is lost to a client that does not do its part."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head = 0  # bytes received of the head so far
        self._tls: dict[object, object] | None = None  # what the client showed of itself, if it did
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._stall_timer: asyncio.TimerHandle | None = None  # there while much waits to be read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._tls = _shown(transport.get_extra_info("ssl_object"))
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop_timer()
        self._stop_stall_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # Uvicorn names the class of its cycles in the middle of a method; this is the next place.
        cycle.__class__ = _Cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Begin what waits, or to be idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._look_idle)

    def _look_idle(self) -> None:
        """Close a connection nothing has happened on for long enough."""
        self._idle_timer = None
        if self._head or not self.cycle.response_complete:
            return  # busy; when it is done it will be idle again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left <= 0:
            self.transport.close()
        else:
            self._idle_timer = self.loop.call_later(left, self._look_idle)

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
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}
        parser, limit = self.parser, self.limit_concurrency
        crowded = limit is not None and len(self.connections) >= limit
        if crowded or parser.should_upgrade() or parser.get_http_version() != "1.1":
            super().on_headers_complete()
        else:
            self._begin_request()

    def _begin_request(self) -> None:
        """Do for the usual request what uvicorn does for all."""
        scope = self.scope
        path, raw_path, query = _place(self.root_path, self.url)
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["path"] = path
        scope["raw_path"] = raw_path
        scope["query_string"] = query
        before: Any = self.cycle  # None before the first request
        self.cycle = _Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

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


@lru_cache(maxsize=256)
def _place(root: str, url: bytes) -> tuple[str, bytes, bytes]:
    """Take an address apart: its path, that as it was sent, and its query. Most are the same few."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    if "%" in path:
        path = unquote(path)
    return root + path, root.encode("ascii") + parsed.path, parsed.query or b""


class _Cycle(RequestResponseCycle):
    """One request of uvicorn's, whose response begins in one piece with its head."""

    _head: Any = None  # held back for the body, or the first part of it, that follows at once

    async def send(self, message: Any) -> None:
        """Take an event of the application."""
        head = self._head
        if head is None and message["type"] == "http.response.start":
            self._head = message
            return
        if head is None:
            await super().send(message)
            return
        self._head = None
        if self.flow.write_paused or self.disconnected or self.scope["method"] == "HEAD":
            await super().send(head)
            await super().send(message)
        else:
            self._begin(head, message["body"], message.get("more_body", False))

    def _begin(self, head: Any, body: bytes, more: bool) -> None:
        parts = [STATUS_LINE[head["status"]]]
        self.chunked_encoding = head["status"] != 204
        for name, value in head["headers"]:
            if name == b"connection":
                self.keep_alive = False  # the one thing an endpoint says about it
                continue
            if name == b"content-length":
                self.chunked_encoding = False
                self.expected_content_length = int(value) - len(body)
            parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        if self.chunked_encoding:
            parts.append(b"transfer-encoding: chunked\r\n\r\n")
            if body:
                parts += (b"%x\r\n" % len(body), body, b"\r\n")
            if not more:
                parts.append(b"0\r\n\r\n")
        else:
            parts += (b"\r\n", body)
        self.transport.write(b"".join(parts))
        self.response_started = True
        if not more:
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _shown(connection: ssl.SSLObject | None) -> dict[object, object] | None:
    """Give the client's certificate, which TLS has verified, in the words of ASGI's extension."""
    der = None if connection is None else connection.getpeercert(binary_form=True)
    if der is None:
        return None
    return {"client_cert_chain": [ssl.DER_cert_to_PEM_cert(der)], "client_cert_error": None}
