"""Our side of an HTTP/1.1 connection, under uvicorn: bytes to requests of the endpoint, and back.

Uvicorn opens ports, counts connections and shuts down. What happens on a connection is done here, for
two reasons. It bounds what a client may leave undone: a request that does not begin, a head without
end, a response nobody reads (bodies and streams are the endpoint's affair). And every request pays for
what stands between the socket and the endpoint, so nothing does: a request that arrived whole is
served in place, and its response leaves in one piece.
"""

import asyncio
import logging
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any

import httptools

from mcpearl.runtime.tasks import spawn
from mcpearl.server.http_lines import place_of, status_line
from mcpearl.server.http_visit import Visit
from mcpearl.transports.http_request import put

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from mcpearl.transports.http_endpoint import Endpoint

logger = logging.getLogger("mcpearl.http")

MAX_HEAD = 64 * 1024  # bytes of a request beside its body
HEAD_TIMEOUT = 30.0  # seconds for the head of a request, and for a new connection's first one
STALLED = 60.0  # seconds in which a client that was sent something must take some of it
_MAX_UNREAD = 64 * 1024  # bytes of a body that may wait for the endpoint


class HttpProtocol(asyncio.Protocol):
    """One connection, that is lost to a client that does not do its part."""

    # What most connections never need has its value here.
    _head = 0  # bytes received of the head so far
    _tls: dict[object, object] | None = None  # what the client showed of itself, if it did
    _ends: tuple[str, Any, Any] | None = None  # scheme, server and client, once asked for
    _head_timer: asyncio.TimerHandle | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _stall_timer: asyncio.TimerHandle | None = None  # there while much waits to be read
    _writable: asyncio.Event | None = None  # there while too much waits to be sent
    _coming: Visit | None = None  # whose head is there, but not all of its body
    _current: Visit | None = None  # that is being answered
    _waiting: deque[Visit] | None = None  # that came before the one in hand was answered
    _reading = True
    _served = False  # something was, since data last arrived

    def __init__(
        self,
        config: "Config",
        server_state: "ServerState",
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_running_loop()
        self._config = config
        self._endpoint: Endpoint = config.loaded_app
        self._server_state = server_state
        self._app_state = app_state
        self._parser: Any = self._make_parser()
        self._headers: dict[bytes, bytes] = {}
        self._url = b""

    def _make_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # What follows a request that closes the connection is not looked at, but no error either.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        shown = transport.get_extra_info("ssl_object")
        if shown is not None:
            self._tls = _shown(shown)
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and tell whoever answers."""
        self._server_state.connections.discard(self)
        for timer in (self._head_timer, self._stall_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._stall_timer = self._idle_timer = None
        for visit in (self._current, self._coming):
            if visit is not None:
                visit.lose()
        self._waiting = None
        self._flow()
        self._parser = None

    def shutdown(self) -> None:
        """End when what is in hand is answered: uvicorn's wish."""
        last = self._coming or (self._waiting[-1] if self._waiting else self._current)
        if last is None:
            self.transport.close()
        else:
            last.keep_alive = False

    def describe(self, visit: Visit) -> dict[str, Any]:
        """Give a request in the words of ASGI."""
        path, raw_path, query = place_of(visit.url)
        if self._ends is None:
            self._ends = _ends_of(self.transport)
        scheme, server, client = self._ends
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1" if visit.chunks else "1.0",
            "server": server,
            "client": client,
            "scheme": scheme,
            "method": visit.method,
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": [*visit.headers.items()],
            "state": self._app_state.copy(),
        }
        if self._tls is not None:
            scope["extensions"] = {"tls": self._tls}
        return scope

    # Receiving

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless it is too many that are no body."""
        self._head += len(data)
        self._served = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._is_websocket():
                self._upgrade()
            else:
                self._decline_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self.refuse(400, "This is not HTTP.")
            return
        if self._coming is not None:
            self._begin_early()
        if self._head == 0:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._head > MAX_HEAD:
            self.refuse(400, "The head of the request is too large.")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._headers = {}
        self._url = b""

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        found, name = self._headers, name.lower()
        if name in found:
            put(found, name, value)
        else:
            found[name] = value.strip(b" \t")  # as `put`, which every header would pay for

    def on_headers_complete(self) -> None:
        """Make the request, whose body may follow."""
        self._head = 0
        parser, most = self._parser, self._config.limit_concurrency
        if parser.should_upgrade():
            return  # the parser will say so
        if most is not None and len(self._server_state.connections) >= most:
            self.refuse(503, "Too many connections.")
            return
        if self.transport.is_closing():
            return
        keep_alive = parser.should_keep_alive()
        method = parser.get_method().decode("ascii")
        self._coming = Visit(self, method, self._url, self._headers, keep_alive)
        if parser.get_http_version() == "1.0":
            self._coming.chunks = self._coming.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._head = 0
        visit = self._coming or self._current
        if visit is None or visit.complete:
            return
        if visit.take(body) > _MAX_UNREAD and visit is self._current:
            self._pause()

    def on_message_complete(self) -> None:
        """Serve what is whole; what comes while another is being answered waits."""
        self._head = 0
        visit, self._coming = self._coming, None
        if visit is None:
            if self._current is not None:
                self._current.end_body()
            return
        visit.end_body()
        if self._current is None and not (self._served or self._waiting):
            self._served = True  # one at a time, lest others wait for all that come together
            visit.settle()
            self._begin(visit)
        else:
            self._queue(visit)

    def _begin_early(self) -> None:
        """Serve a request that is still coming; the endpoint says how long it may take."""
        visit = self._coming
        assert visit is not None
        if self._current is None and not self._waiting:
            self._coming = None
            self._begin(visit)
        elif visit.unread > _MAX_UNREAD:
            self._pause()

    # Answering

    def _begin(self, visit: Visit) -> None:
        self._current = visit
        task = spawn(self.loop, self._serve(visit))
        if not task.done():
            tasks = self._server_state.tasks
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _serve(self, visit: Visit) -> None:
        try:
            await self._endpoint.serve(visit)
        except asyncio.CancelledError:
            await visit.fail(503, "The server is shutting down")
        except BaseException:
            logger.exception("a request could not be answered")
            await visit.fail(500, "Internal error")
        if not (visit.complete or visit.gone):
            await visit.fail(500, "There is no answer")  # also the end of a stream nobody reads

    def _queue(self, visit: Visit) -> None:
        """Keep a request until those before it are answered; no further ones are read."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(visit)
        self._pause()
        if self._current is None:
            self.loop.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        if self._current is None and self._waiting:
            visit = self._waiting.popleft()
            visit.settle()
            self._begin(visit)
        if self._current is None and self._coming is not None:
            self._begin_early()

    def answered(self, visit: Visit) -> None:
        """Begin what waits, or to be idle."""
        self._server_state.total_requests += 1
        self._current = None
        if not visit.keep_alive:
            self.transport.close()
            return
        if self._waiting or self._coming is not None:
            self.loop.call_soon(self._begin_next)
        if not self._waiting and not self._reading:
            self.resume()
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            patience = self._config.timeout_keep_alive
            self._idle_timer = self.loop.call_later(patience, self._look_idle)

    def refuse(self, status: int, reason: str) -> None:
        """Close the connection, and say why."""
        self._coming = None
        if self.transport.is_closing():
            return
        text = reason.encode()
        self.transport.write(
            b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status_line(status), len(text), text)
        )
        self.transport.close()

    # Upgrades

    def _is_websocket(self) -> bool:
        """Whether a WebSocket is asked for, and there is one."""
        asked = self._headers.get(b"upgrade", b"").lower() == b"websocket"
        return asked and self._config.ws_protocol_class is not None

    def _upgrade(self) -> None:
        """Hand the connection over to whoever serves WebSockets."""
        self.connection_lost(None)
        head = self._rewritten(b"GET", self._headers)
        make: Any = self._config.ws_protocol_class
        protocol = make(
            config=self._config, server_state=self._server_state, app_state=self._app_state
        )
        protocol.connection_made(self.transport)
        protocol.data_received(head)
        self.transport.set_protocol(protocol)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1 with a client that would also speak something else, such as h2c."""
        kept = {
            name: value
            for name, value in self._headers.items()
            if name not in (b"upgrade", b"connection")
        }
        head = self._rewritten(self._parser.get_method(), kept)
        self._parser = self._make_parser()
        self.data_received(head + rest)

    def _rewritten(self, method: bytes, headers: dict[bytes, bytes]) -> bytes:
        lines = [b"%b: %b\r\n" % header for header in headers.items()]
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self._url, b"".join(lines))

    # Flow

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self._reading:
            self._reading = True
            self.transport.resume_reading()

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
        self._watch_buffer()

    def resume_writing(self) -> None:
        """Note that it does."""
        self._flow()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _flow(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # Time

    def _watch_buffer(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALLED, self._check_buffer, waiting)

    def _check_buffer(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._watch_buffer()
        else:
            self._stall_timer = None
            self.transport.abort()

    def _look_idle(self) -> None:
        """Close a connection nothing has happened on for long enough."""
        self._idle_timer = None
        if self._head or self._current is not None or self._waiting or self._coming is not None:
            return  # busy; when it is done it will be idle again
        left = self._idle_since + self._config.timeout_keep_alive - self.loop.time()
        if left <= 0:
            self.transport.close()
        else:
            self._idle_timer = self.loop.call_later(left, self._look_idle)

    def _give_up(self) -> None:
        """Close a connection on which no request comes to its end."""
        self._head_timer = None
        if self._current is None:
            self.transport.close()


def _ends_of(transport: asyncio.BaseTransport) -> tuple[str, Any, Any]:
    info = transport.get_extra_info
    addresses = info("sockname"), info("peername")
    server, client = (one[:2] if isinstance(one, tuple) else None for one in addresses)
    return "http" if info("sslcontext") is None else "https", server, client


def _shown(connection: ssl.SSLObject) -> dict[object, object] | None:
    """Give the client's certificate, which TLS has verified, in the words of ASGI's extension."""
    der = connection.getpeercert(binary_form=True)
    if der is None:
        return None
    return {"client_cert_chain": [ssl.DER_cert_to_PEM_cert(der)], "client_cert_error": None}
