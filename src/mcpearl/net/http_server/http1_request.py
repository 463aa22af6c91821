"""One request on one of our connections, and its response: the endpoint's `Request` without ASGI."""

import asyncio
from typing import TYPE_CHECKING, Any

from mcpearl.net.http_server.lines import place_of, status_line
from mcpearl.net.http_server.request import JSON, Headers, Lingerer, Scope

if TYPE_CHECKING:
    from mcpearl.net.http_server.http1_connection import Http1Connection

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
_GONE: dict[str, Any] = {"type": "http.disconnect"}


class Http1Request:
    """A request from the end of its head to the end of its response."""

    # Most requests arrive whole and are answered at once; what others need has its value here.
    body: bytes | None = None
    extra: Headers = ()
    in_place = True
    exchange: Lingerer | None = None
    chunks = True  # the client knows bodies that come in chunks
    complete = False  # the response is
    gone = False  # the client is
    _buffer: bytes | bytearray = b""  # of the body, that was not received yet
    is_whole = False  # there is no more of the body
    _asked = False  # somebody receives it in parts
    _told = False  # and knows where it ended
    _scope: Scope | None = None
    _news: asyncio.Event | None = None  # there while somebody waits to receive
    _held: dict[str, Any] | None = None  # the head of a response, which leaves with its first part
    has_begun = False  # some of the response has left
    _chunked = False
    _silent = False  # it has no body, whatever there is of it

    def __init__(
        self,
        protocol: "Http1Connection",
        method: str,
        url: bytes,
        headers: dict[bytes, bytes],
        keep_alive: bool,
    ) -> None:
        self.protocol = protocol
        self.method = method
        self.url = url
        self.path = place_of(url)[0]
        self.headers = headers
        self.keep_alive = keep_alive

    @property
    def scope(self) -> Scope:
        """The request in ASGI's words."""
        if self._scope is None:
            self._scope = self.protocol.describe(self)
        return self._scope

    @scope.setter
    def scope(self, scope: Scope) -> None:
        self._scope = scope

    # What the connection does

    def take(self, body: bytes) -> int:
        """Take a part of the body; give how much was not received yet."""
        if not self._buffer:
            self._buffer = body
        else:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer)
            self._buffer += body
        self._wake()
        return len(self._buffer)

    @property
    def unread(self) -> int:
        """How much of the body was not received yet."""
        return len(self._buffer)

    def end_body(self) -> None:
        """Note that the body is whole; who has not asked for parts of it yet gets it at once."""
        self.is_whole = True
        if not self._asked:
            self.body, self._buffer = bytes(self._buffer), b""
            self._told = True
        self._wake()

    def linger(self) -> None:
        """Note that it could not be answered at once."""
        self.in_place = False
        if self.exchange is not None:
            self.exchange.linger()

    def lose(self) -> None:
        """Note that the client has left."""
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()

    # What the endpoint does

    async def receive(self) -> dict[str, Any]:
        """Wait for more of the body, or for the client to leave."""
        self._asked = True
        if not (self.is_whole or self.has_begun) and b"expect" in self.headers:
            self._expect()
        while not (self.gone or self.complete):
            if self._buffer or (self.is_whole and not self._told):
                body, self._buffer = bytes(self._buffer), b""
                self._told = self.is_whole
                return {"type": "http.request", "body": body, "more_body": not self.is_whole}
            self.protocol.resume()
            if self._news is None:
                self._news = asyncio.Event()
            self._news.clear()
            await self._news.wait()
        return _GONE

    def _expect(self) -> None:
        """Ask for the body, where the client waits for that."""
        expected = self.headers.pop(b"expect").lower() == b"100-continue"
        if expected and self.chunks and not self._buffer:
            self.protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def respond(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """Give a whole response; a body is JSON."""
        protocol = self.protocol
        if protocol.is_full:
            await protocol.drain()
        if self.gone or self.complete:
            return
        if status == 200 and self.keep_alive and not (headers or self.extra):
            whole = b"%b%d\r\n\r\n%b" % (_OK, len(body), body)
        else:
            told = [*headers]
            if body:
                told.append((b"content-type", JSON))
            if status != 204:
                told.append((b"content-length", b"%d" % len(body)))
            whole = self._head(status, told) + (b"" if self.method == "HEAD" else body)
        protocol.transport.write(whole)
        self._complete()

    async def send(self, event: dict[str, Any]) -> None:
        """Give a part of the response. Its head leaves with what follows at once."""
        if event["type"] == "http.response.start":
            self._held = event
            return
        protocol = self.protocol
        if protocol.is_full:
            await protocol.drain()
        if self.gone or self.complete:
            return
        part, more = event.get("body", b""), event.get("more_body", False)
        parts: list[bytes] = []
        if self._held is not None:
            parts.append(self._begin(self._held))
            self._held = None
        if self._silent:
            pass
        elif self._chunked:
            if part:
                parts += (b"%x\r\n" % len(part), part, b"\r\n")
            if not more:
                parts.append(b"0\r\n\r\n")
        else:
            parts.append(part)
        protocol.transport.write(b"".join(parts))
        if not more:
            self._complete()

    def _begin(self, event: dict[str, Any]) -> bytes:
        headers, status = [*event["headers"]], event["status"]
        if self.method == "HEAD" or status in (204, 304):
            self._silent = True
        elif not any(name == b"content-length" for name, _ in headers):
            if self.chunks:
                self._chunked = True
                headers.append((b"transfer-encoding", b"chunked"))
            else:
                self.keep_alive = False  # its end is the connection's
        return self._head(status, headers)

    def _head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        self.has_begun = True
        parts = [status_line(status)]
        for name, value in (*headers, *self.extra):
            if name == b"connection":
                self.keep_alive = False  # the one thing an endpoint says about it
            else:
                parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(parts)

    def _complete(self) -> None:
        self.complete = True
        if self._news is not None:
            self._news.set()
        self.protocol.answered(self)

    async def fail(self, status: int, reason: str) -> None:
        """Answer what went wrong: with an error while that is possible, then by hanging up."""
        if self.complete or self.gone:
            return
        if self.has_begun or self.protocol.is_full:
            self.protocol.close()
            return
        self.keep_alive = False
        await self.respond(status, self.protocol.error_body(reason))
