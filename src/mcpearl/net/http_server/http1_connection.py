"""Our side of an HTTP/1.1 connection, under uvicorn: bytes to requests of the endpoint, and back.

Uvicorn opens ports, counts connections and shuts down. What happens on a connection is done here, for
two reasons. It bounds what a client may leave undone or pile up (what concerns bodies and streams is
the endpoint's affair). And every request pays for what stands between the socket and the endpoint, so
nothing does: a request that arrived whole is served in place, and its response leaves in one piece.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httptools

from mcpearl.net.http_server.batching import IterationBatch
from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.net.http_server.lines import place_of, status_line
from mcpearl.net.http_server.request import Serving, put
from mcpearl.net.http_server.timeouts import TimedProtocol
from mcpearl.net.tls import tls_extension
from mcpearl.runtime.eager import spawn

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

logger = logging.getLogger("mcpearl.http")

MAX_HEAD = 64 * 1024  # bytes of a request beside its body, after those that came with its first
MAX_WAITING = 16  # requests that may wait for the one in hand before no more are read
_MAX_UNREAD = 64 * 1024  # bytes of a body that may wait for the endpoint
_MAX_VALUE = 8 * 1024  # bytes of a header that is given several times


class Http1Connection(TimedProtocol):
    """One connection. Those that share a `round` are served together."""

    round = IterationBatch()
    error_body: Callable[[str], bytes]  # of an error response, which says what went wrong
    # What most connections never need has its value here.
    _head = 0  # bytes received of the head so far
    _tls: dict[str, Any] | None = None  # what the client showed of itself, if it did
    _common: dict[str, Any] | None = None  # of all descriptions of its requests, once asked for
    _coming: Http1Request | None = None  # whose head is there, but not all of its body
    _current: Http1Request | None = None  # that is being answered
    _waiting: deque[Http1Request] | None = None  # that came before the one in hand was answered
    _reading = True
    _served = False  # something was, since data last arrived
    _deaf = False  # whatever else comes is not looked at
    _farewell: bytes | None = None  # to be said when everything is answered

    def __init__(
        self,
        config: "Config",
        server_state: "ServerState",
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(_loop or asyncio.get_running_loop(), config.timeout_keep_alive)
        self._config = config
        self.endpoint: Serving = config.loaded_app
        self._server_state = server_state
        self._app_state = app_state
        self._parser = self._make_parser()
        self._headers: dict[bytes, bytes] = {}
        self._url = b""

    def _make_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # What follows a request that closes the connection is not looked at, but no error either.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # The connection

    @property
    def busy(self) -> bool:
        """Whether requests are in hand."""
        return bool(self._current or self._waiting or self._coming)

    @property
    def has_begun(self) -> bool:
        """Whether a part of a head has come."""
        return self._head > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        shown = transport.get_extra_info("ssl_object")
        if shown is not None:
            self._tls = _shown(shown)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and tell whoever answers."""
        super().connection_lost(exc)
        self._server_state.connections.discard(self)
        self._deaf = True
        current, self._current, self._coming, self._waiting = self._current, None, None, None
        if current is not None:
            current.lose()

    def shutdown(self) -> None:
        """End when what is in hand is answered: uvicorn's wish."""
        last = self._coming or (self._waiting[-1] if self._waiting else self._current)
        if last is None:
            self.close()
        else:
            self._deaf = last is not self._coming and last.is_whole
            last.keep_alive = False

    def describe(self, visit: Http1Request) -> dict[str, Any]:
        """Give a request in the words of ASGI."""
        path, raw_path, query = place_of(visit.url)
        if self._common is None:
            self._common = self._describe_ends()
        return {
            **self._common,
            "http_version": "1.1" if visit.chunks else "1.0",
            "method": visit.method,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": [*visit.headers.items()],
        }

    def _describe_ends(self) -> dict[str, Any]:
        info = self.transport.get_extra_info
        addresses = info("sockname"), info("peername")
        server, client = (one[:2] if isinstance(one, tuple) else None for one in addresses)
        common = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "server": server,
            "client": client,
            "scheme": "http" if info("sslcontext") is None else "https",
            "root_path": "",
            "state": self._app_state,
        }
        if self._tls is not None:
            common["extensions"] = {"tls": self._tls}
        return common

    # Receiving

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless it is too many that are no body."""
        if not self._deaf:
            self._head += len(data)
            self._served = False
            self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._asked_to_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._not_understood(error)
        if self._deaf:
            return
        if self._coming is not None:
            self._begin_early()
        if self._head == 0:
            if self._head_timer is not None:
                self.stop_waiting()
        elif self._head > MAX_HEAD:
            self.refuse(431, "The head of the request is too large.")
        else:
            self.await_head()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._head = 1  # at least; what came before it in the same piece is not its
        self._headers = {}
        self._url = b""

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        found, name = self._headers, name.lower()
        if name not in found:
            found[name] = value.strip(b" \t")  # as `put`, which every header would pay for
        elif len(found[name]) < _MAX_VALUE:
            put(found, name, value)
        else:
            self.refuse(431, "A header is given too often.")

    def on_headers_complete(self) -> None:
        """Make the request, whose body may follow."""
        self._head = 0
        parser = self._parser
        if self._deaf or parser.should_upgrade():
            return  # of the latter the parser will tell
        keep_alive = parser.should_keep_alive()
        most = self._config.limit_concurrency
        if most is not None and len(self._server_state.connections) >= most:
            self.refuse(503, "Too many connections.")
            return
        try:
            method = parser.get_method().decode("ascii")
            visit = Http1Request(self, method, self._url, self._headers, keep_alive)
        except ValueError:
            self.refuse(400, "The address of the request cannot be read.")
            return
        # Who does not say how long connections last leaves them open from HTTP/1.1 on.
        if not keep_alive or b"connection" in self._headers:
            visit.chunks = parser.get_http_version() == "1.1"
            visit.keep_alive = keep_alive and visit.chunks
        self._headers = {}  # a header behind the body is none of the request's
        self._coming = visit

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._head = 0
        visit = self._coming or self._current
        if visit is None or visit.is_whole:
            self._idle_since = self.loop.time()  # of a request that was answered already
        elif visit.take(body) > _MAX_UNREAD and visit is self._current:
            self._pause()

    def on_message_complete(self) -> None:
        """Serve what is whole; what comes while another is being answered waits."""
        self._head = 0
        visit, self._coming = self._coming, None
        if visit is None:
            visit = self._current
            if visit is not None and not visit.is_whole:
                visit.end_body()
                self._deaf = not visit.keep_alive
            return
        visit.end_body()
        self._deaf = not visit.keep_alive
        if self._current is None and not (self._served or self._waiting):
            self._served = True  # one at a time, lest others wait for all that come together
            if len(self._server_state.connections) > 1:
                self._current = visit
                self.round.add(visit, self.loop)
            else:
                self.begin(visit)
        else:
            self._queue(visit)

    def _begin_early(self) -> None:
        """Serve a request that is still coming; the endpoint says how long it may take."""
        visit = self._coming
        assert visit is not None
        if self._current is None and not self._waiting:
            self._coming = None
            self.begin(visit)
        elif visit.unread > _MAX_UNREAD:
            self._pause()

    # Answering

    def begin(self, visit: Http1Request) -> None:
        """Serve a request, now."""
        self._current = visit
        task = spawn(self.loop, self._serve(visit))
        if not task.done():
            visit.linger()
            tasks = self._server_state.tasks
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _serve(self, visit: Http1Request) -> None:
        try:
            await self.endpoint.serve(visit)
        except asyncio.CancelledError:
            await visit.fail(503, "The server is shutting down")
        except BaseException:
            logger.exception("a request could not be answered")
            await visit.fail(500, "Internal error")
        if not (visit.complete or visit.gone):
            await visit.fail(500, "There is no answer")  # also the end of a stream nobody reads

    def _queue(self, visit: Http1Request) -> None:
        """Keep a request until those before it are answered."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(visit)
        if len(self._waiting) >= MAX_WAITING:
            self._pause()
        if self._current is None:
            self.loop.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        if self._current is not None or self.transport.is_closing():
            return
        if self._waiting:
            self.begin(self._waiting.popleft())
        elif self._coming is not None:
            self._begin_early()

    def answered(self, visit: Http1Request) -> None:
        """Begin what waits, or to be idle."""
        if visit is not self._current:
            return
        self._server_state.total_requests += 1
        self._current = None
        if not visit.keep_alive:
            self.close()
            return
        if self._waiting or self._coming is not None:
            self.loop.call_soon(self._begin_next)
        elif self._farewell is not None:
            self._say_farewell()
            return
        if not self._reading:
            self.resume()
        self.be_idle()

    def refuse(self, status: int, reason: str) -> None:
        """Say why nothing more is taken on this connection, once what was is answered; and close it."""
        if self._deaf or self.transport.is_closing():
            return
        self._deaf = True
        text = reason.encode()
        self._farewell = (
            b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status_line(status), len(text), text)
        )
        self._coming = None
        current = self._current
        if current is not None and not current.is_whole:
            self._current = None  # it will never be
            current.lose()
            if current.has_begun:
                self.close()
                return
        if self._current is None and not self._waiting:
            self._say_farewell()

    def _say_farewell(self) -> None:
        assert self._farewell is not None
        self.transport.write(self._farewell)
        self.close()

    def _not_understood(self, error: Exception) -> None:
        if isinstance(error, httptools.HttpParserCallbackError):
            logger.error("a request could not be taken", exc_info=error)
        self.refuse(400, "This is not HTTP.")

    # Upgrades

    def _asked_to_upgrade(self, rest: memoryview) -> None:
        """Become a WebSocket, if that is what is asked for and there is one; else go on in HTTP."""
        while not self._deaf:
            if self._parser.get_method() == b"CONNECT":
                self.refuse(405, "This is no proxy.")
            elif not self._wants_websocket():
                try:
                    self._decline_upgrade()
                    self._parser.feed_data(rest)
                except httptools.HttpParserUpgrade as upgrade:
                    rest = rest[upgrade.args[0] :]
                    continue
                except httptools.HttpParserError as error:
                    self._not_understood(error)
            elif self.busy:
                self.refuse(400, "A WebSocket needs a connection of its own.")
            else:
                self._upgrade(rest)
            return

    def _wants_websocket(self) -> bool:
        asked = self._headers.get(b"upgrade", b"").lower() == b"websocket"
        return asked and self._config.ws_protocol_class is not None

    def _upgrade(self, rest: memoryview) -> None:
        """Hand the connection over to whoever serves WebSockets."""
        self.connection_lost(None)
        make: Any = self._config.ws_protocol_class
        protocol = make(
            config=self._config, server_state=self._server_state, app_state=self._app_state
        )
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        protocol.data_received(self._rewritten(self._headers) + rest)

    def _decline_upgrade(self) -> None:
        """Go on in HTTP with a client that would also speak something else, such as h2c."""
        headers = {name: value for name, value in self._headers.items() if name != b"upgrade"}
        connection = headers.pop(b"connection", b"").lower().split(b",")
        kept = [token for token in connection if token.strip() != b"upgrade"]
        if kept:
            headers[b"connection"] = b",".join(kept)
        head = self._rewritten(headers)
        self._parser = self._make_parser()
        self._parser.feed_data(head)

    def _rewritten(self, headers: dict[bytes, bytes]) -> bytes:
        lines = [b"%b: %b\r\n" % header for header in headers.items()]
        version = self._parser.get_http_version().encode()
        first = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, version)
        return b"%b%b\r\n" % (first, b"".join(lines))

    # Flow

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on, unless enough waits."""
        full = self._waiting is not None and len(self._waiting) >= MAX_WAITING
        if not (self._reading or full):
            self._reading = True
            self.transport.resume_reading()


def _shown(connection: ssl.SSLObject) -> dict[str, Any] | None:
    """Give the client's certificate, which TLS has verified, in the words of ASGI's extension."""
    der = connection.getpeercert(binary_form=True)
    if der is None:
        return None
    return tls_extension(ssl.DER_cert_to_PEM_cert(der))
