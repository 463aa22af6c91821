"""The reading half of an HTTP/1.1 connection: makes requests of what the parser finds."""

import logging
from typing import TYPE_CHECKING, Any

import httptools

from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.net.http_server.lines import parse_target
from mcpearl.net.http_server.request import Head, put
from mcpearl.net.http_server.timeouts import TimedProtocol
from mcpearl.net.http_server.upgrade import Upgrade
from mcpearl.runtime.budget import CHUNK, Holding

if TYPE_CHECKING:
    from mcpearl.net.http_server.front import HttpFront

logger = logging.getLogger("mcpearl.http")

MAX_HEAD = 64 * 1024  # bytes of a request except its body, not counting the read it began in
MAX_UNREAD = 64 * 1024  # bytes of a body that may wait for the endpoint
_MAX_VALUE = 8 * 1024  # bytes of a header up to which it may be repeated


class RequestReader(TimedProtocol):
    """Reads the requests of one connection, and refuses what is not one."""

    __slots__ = (
        "_begun",
        "_between",
        "_coming",
        "_current",
        "_deaf",
        "_head_holding",
        "_head_size",
        "_headers",
        "_parsed",
        "_parser",
        "_surplus",
        "_target",
        "front",
    )

    def __init__(self, front: "HttpFront") -> None:
        super().__init__(front.loop, front.keep_alive, front.stall_timeout)
        self.front = front
        self._parser = self._make_parser()
        self._headers: dict[bytes, bytes] = {}
        self._target = b""
        self._head_size = 0  # bytes received of an unfinished head
        self._between = True  # the parser is at the beginning of a message
        self._begun = 0  # messages that began in the bytes being parsed
        self._parsed: Head | None = None  # the newest head in them
        self._head_holding: Holding | None = None  # of a large head while it arrives
        self._surplus = False  # there was no room for the connection when it was made
        self._deaf = False  # further bytes are ignored
        self._coming: Http1Request | None = None  # its head is complete, its body is not
        self._current: Http1Request | None = None  # it is being answered

    def _request_of(self, head: Head) -> Http1Request:
        """Make a request, whose body may follow."""
        raise NotImplementedError

    def _arrived(self, request: Http1Request) -> None:
        """Serve a request that is whole, in its turn."""
        raise NotImplementedError

    def _begin_early(self) -> None:
        """Serve a request whose body is still arriving, in its turn."""
        raise NotImplementedError

    def _pause(self) -> None:
        """Stop reading: enough requests, or enough of a body, wait."""
        raise NotImplementedError

    def _is_crowded(self) -> bool:
        """Refuse the first request of a surplus connection, unless there is room by now."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Release what the connection holds."""
        raise NotImplementedError

    def refuse(self, status: int, reason: str, headers: bytes = b"") -> None:
        """Send an error after the responses of earlier requests, and close the connection."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether requests are in hand."""
        raise NotImplementedError

    def _make_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # What follows a request that closes the connection is ignored; it is not an error.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _parse(self, data: bytes) -> None:
        between, self._begun = self._between, 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._asked_to_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._not_understood(error)
        if self._deaf:
            return
        parsed, self._parsed = self._parsed, None
        if between and self._between and self._begun == 1 and parsed is not None:
            self.front.remember(parsed, data)
        if self._coming is not None:
            self._begin_early()
        if self._head_size == 0:
            if self._head_timer is not None:
                self.stop_waiting()
        elif self._head_size > MAX_HEAD:
            self.refuse(431, "The head of the request is too large.")
        else:
            self.await_head()
            if self._head_size > CHUNK or len(data) > CHUNK:
                self._count_head(len(data))

    def _count_head(self, first: int) -> None:
        """Count a large and incomplete head in the budget, at the full size it may reach.

        `first` is the size of the read that it began in, at any place.
        """
        if self._head_holding is None:
            self._head_holding = self.account.open("heads")
        if not self._head_holding.resize(MAX_HEAD + first):
            self.refuse(503, self.account.refusal, b"retry-after: 1\r\n")

    def on_message_begin(self) -> None:
        """Begin a request. Called by the parser, as are the other `on_…`."""
        self._head_size = 1  # at least; earlier bytes of the same read belong to other requests
        self._between = False
        self._begun += 1
        self._headers = {}
        self._target = b""

    def on_url(self, part: bytes) -> None:
        """Take a part of the request target."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        found, name = self._headers, name.lower()
        if name not in found:
            found[name] = value.strip(b" \t")
        elif name == b"host":
            self.refuse(400, "There is more than one Host header.")
        elif len(found[name]) < _MAX_VALUE:
            put(found, name, value)
        else:
            self.refuse(431, "A header is repeated too often.")

    def on_headers_complete(self) -> None:
        """Make the request, whose body may follow."""
        self._head_size = 0
        if self._head_holding is not None:
            self._head_holding.release()
        parser = self._parser
        if self._deaf or self._is_doubtful() or parser.should_upgrade():
            return  # an upgrade is reported when the parser returns
        if self._surplus and self._is_crowded():
            return
        try:
            path, query, host = parse_target(self._target)
            method = parser.get_method().decode("ascii")
        except ValueError:
            self.refuse(400, "The address of the request cannot be read.")
            return
        if host is not None:
            self._headers[b"host"] = host  # the host in the target counts (RFC 9112, 3.2.2)
        head = self._parsed = Head(method, path, query, self._headers)
        head.keep_alive = parser.should_keep_alive()
        # Without a `Connection` header, HTTP/1.1 keeps the connection open and HTTP/1.0 does not.
        if not head.keep_alive or b"connection" in self._headers:
            head.chunks = parser.get_http_version() == "1.1"
            head.keep_alive = head.keep_alive and head.chunks
        self._headers = {}  # trailers are not headers of the request
        self._coming = self._request_of(head)

    def _is_doubtful(self) -> bool:
        """Refuse a head that does not name its host, or has a body that cannot be read."""
        headers = self._headers
        if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            self.refuse(501, "The only transfer encoding that is read here is `chunked`.")
        elif b"host" not in headers and self._parser.get_http_version() != "1.0":
            self.refuse(400, "The Host header is missing.")
        return self._deaf

    def on_body(self, part: bytes) -> None:
        """Take a part of a body."""
        self._head_size = 0
        request = self._coming or self._current
        if request is None or request.is_whole:
            self._idle_since = self.loop.time()  # the request was answered already
        elif request.take(part) > MAX_UNREAD and request is self._current:
            self._pause()

    def on_message_complete(self) -> None:
        """Serve the request, or complete the one being answered."""
        self._head_size = 0
        self._between = True
        request, self._coming = self._coming, None
        if request is not None:
            request.end_body()
            self._deaf = not request.keep_alive
            self._arrived(request)
        elif self._current is not None and not self._current.is_whole:
            self._current.end_body()
            self._deaf = not self._current.keep_alive

    def _not_understood(self, error: Exception) -> None:
        if isinstance(error, httptools.HttpParserCallbackError):
            logger.error("a request could not be taken", exc_info=error)
        self.refuse(400, "This is not HTTP.")

    def _asked_to_upgrade(self, rest: memoryview) -> None:
        """Become a WebSocket if that is asked for and served here; otherwise continue in HTTP."""
        while not self._deaf:
            upgrade = Upgrade(self._parser, self._target, self._headers)
            if upgrade.is_tunnel:
                self.refuse(405, "This is not a proxy.")
            elif self.front.websocket is None or not upgrade.is_websocket:
                self._parser = self._make_parser()
                try:
                    self._parser.feed_data(upgrade.declined())
                    self._parser.feed_data(rest)
                except httptools.HttpParserUpgrade as error:
                    rest = rest[error.args[0] :]
                    continue
                except httptools.HttpParserError as error:
                    self._not_understood(error)
            elif self.busy:
                self.refuse(400, "A WebSocket needs a connection of its own.")
            else:
                super().connection_lost(None)
                self._leave()
                upgrade.hand_over(self.transport, self.front.websocket(), rest)
            return
