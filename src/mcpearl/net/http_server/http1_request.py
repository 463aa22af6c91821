"""One request on one of our connections, and its response: a `Request`."""

import asyncio
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from mcpearl.net.http_server.lines import status_line
from mcpearl.net.http_server.request import (
    JSON,
    BodyTooLarge,
    ClientLeft,
    Head,
    HeaderMap,
    HeaderPairs,
    PeerInfo,
    Waiter,
)
from mcpearl.runtime.budget import Holding

if TYPE_CHECKING:
    from mcpearl.net.http_server.http1_connection import HttpServerConnection

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_OK_HEADS: dict[int, bytes] = {}  # of small bodies, by their length
_SMALL = 4096  # bytes from which on the head is made anew for each body


def _ok_head(length: int) -> bytes:
    head = _OK % length
    if length < _SMALL:
        _OK_HEADS[length] = head
    return head


class Http1Request(Struct, eq=False):
    """A request from the end of its head to the end of its response.

    It is a struct, since that is made without running Python.
    """

    connection: "HttpServerConnection"
    """Where it came from."""
    head: Head
    """What it says before its body."""
    body: bytes | None = None
    """The whole body, if that has arrived."""
    is_whole: bool = False
    """Whether all of the body has arrived."""
    keep_alive: bool = True
    """Whether the connection stays open after the response."""
    extra: HeaderPairs = ()
    in_place: bool = True
    waiter: Waiter | None = None
    complete: bool = False
    """Whether the response has been sent."""
    gone: bool = False
    """Whether the client has left."""
    has_begun: bool = False
    """Whether some of the response has been sent."""
    _news: asyncio.Event | None = None  # set when more of the body came, or the end
    _buffer: bytes | bytearray = b""  # of the body, not read yet
    _reading: bool = False  # the endpoint reads the body in parts
    _held: bytes | None = None  # the head of a response, which leaves with its first part
    _chunked: bool = False
    _silent: bool = False  # the response has no body, whatever is written
    _peer: PeerInfo | None = None  # if not the connection's

    root: ClassVar[str] = ""
    __repr__ = object.__repr__  # what a client sent belongs in no log

    @property
    def headers(self) -> HeaderMap:
        """The headers by name in lower case."""
        return self.head.headers

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.head.method

    @property
    def path(self) -> str:
        """The decoded path."""
        return self.head.path

    @property
    def query(self) -> bytes:
        """The query string as it was sent."""
        return self.head.query

    @property
    def peer(self) -> PeerInfo:
        """How the client reached the server."""
        return self._peer or self.connection.peer

    def passed_on(self, peer: PeerInfo, headers: HeaderMap) -> None:
        """Replace peer and headers by those of the worker that passed the request on."""
        head = self.head
        self.head = Head(head.method, head.path, head.query, headers)
        self._peer = peer

    # Called by the connection

    def take(self, part: bytes) -> int:
        """Take a part of the body; return how many bytes have not been read yet."""
        if not self._buffer:
            self._buffer = part
        else:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer)
            self._buffer += part
        if self._news is not None:
            self._news.set()
        return len(self._buffer)

    @property
    def unread(self) -> int:
        """How many bytes of the body have not been read yet."""
        return len(self._buffer)

    def end_body(self) -> None:
        """Note that the body is whole."""
        self.is_whole = True
        if not self._reading:
            self.body, self._buffer = bytes(self._buffer), b""
        if self._news is not None:
            self._news.set()

    def waits(self) -> None:
        """Note that the request could not be answered in place."""
        self.in_place = False
        if self.waiter is not None:
            self.waiter.waits()

    def lose(self) -> None:
        """Note that the client has left."""
        self.gone = True
        if self._news is not None:
            self._news.set()

    # Called by the endpoint

    async def read(self, limit: int, holding: Holding) -> bytes:
        """Wait for the whole body. Raises `BodyTooLarge`, `ClientLeft` or `NoRoom`."""
        if self.body is None:
            self._reading = True
            if not (self.is_whole or self.has_begun) and b"expect" in self.headers:
                self._expect()
            self.body = await self._read_parts(limit, holding)
        if len(self.body) > limit:
            raise BodyTooLarge
        return self.body

    async def _read_parts(self, limit: int, holding: Holding) -> bytes:
        parts: list[bytes] = []
        size = 0
        while not (self.gone or self.complete):
            whole = self.is_whole
            if self._buffer:
                parts.append(bytes(self._buffer))
                size += len(self._buffer)
                self._buffer = b""
            if size > limit:
                raise BodyTooLarge
            if whole:
                return b"".join(parts)
            holding.grow(size)
            self.connection.resume()
            await self._until_news()
        raise ClientLeft

    async def _until_news(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        self._news.clear()
        await self._news.wait()

    def _expect(self) -> None:
        """Ask for the body, if the client waits to be asked."""
        expected = self.headers[b"expect"].lower() == b"100-continue"
        if expected and self.head.chunks and not self._buffer:
            self.connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def until_gone(self) -> None:
        """Wait until the client has closed its connection, or the response is complete."""
        while not (self.gone or self.complete):
            self._buffer = b""  # of a body that is not wanted any more
            self.connection.resume()
            await self._until_news()

    async def respond(self, status: int, body: bytes, headers: HeaderPairs = ()) -> None:
        """Send a whole response. A body is JSON."""
        while not self.respond_now(status, body, headers):
            await self.connection.drain()

    def respond_now(self, status: int, body: bytes, headers: HeaderPairs = ()) -> bool:
        """Send a whole response, unless the client has to read first. Return whether all is done."""
        if self.gone or self.complete:
            return True
        connection = self.connection
        if connection.writable is not None:
            return False
        if status == 200 and self.keep_alive and not (headers or self.extra):
            whole = (_OK_HEADS.get(len(body)) or _ok_head(len(body))) + body
        else:
            if self.has_begun:  # there is a response already, and it cannot be completed
                connection.close()
                return True
            if body:
                headers = (*headers, (b"content-type", JSON))
            if status != 204:
                headers = (*headers, (b"content-length", b"%d" % len(body)))
            whole = self._head(status, headers) + (b"" if self.head.method == "HEAD" else body)
        batch = connection.batch
        if batch.collecting:
            put = batch.put
            put((connection.transport, whole))
        else:
            connection.write(whole)
        self.complete = True
        if self._news is not None:
            self._news.set()
        connection.answered(self)
        return True

    async def start(self, status: int, headers: HeaderPairs) -> None:
        """Begin a response that is sent in parts. Its head leaves with the first of them."""
        if self.head.method == "HEAD" or status in (204, 304):
            self._silent = True
        elif not any(name == b"content-length" for name, _ in headers):
            if self.head.chunks:
                self._chunked = True
                headers = (*headers, (b"transfer-encoding", b"chunked"))
            else:
                self.keep_alive = False  # the end of the body is the end of the connection
        self._held = self._head(status, headers)

    async def write(self, part: bytes) -> None:
        """Send a part of the body, after the client has read most of the earlier ones."""
        await self._write(part, b"")

    async def end(self, part: bytes = b"") -> None:
        """Send the last part of the body, which may be empty."""
        await self._write(part, b"0\r\n\r\n")
        if not (self.gone or self.complete):
            self.complete = True
            if self._news is not None:
                self._news.set()
            self.connection.answered(self)

    async def _write(self, part: bytes, last: bytes) -> None:
        connection = self.connection
        if connection.writable is not None:
            await connection.drain()
        if self.gone or self.complete:
            return
        held, self._held = self._held or b"", None
        if self._silent:
            part = b""
        elif self._chunked:
            part = (b"%x\r\n%b\r\n" % (len(part), part) if part else b"") + last
        self.has_begun = True
        connection.write(held + part)

    def _head(self, status: int, headers: HeaderPairs) -> bytes:
        parts = [status_line(status)]
        for name, value in (*headers, *self.extra):
            if name == b"connection":
                self.keep_alive = False  # endpoints use this header only to close
            else:
                parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(parts)

    def fail(self, status: int, reason: str) -> None:
        """Send an error if that is still possible; close the connection in any case."""
        if self.complete or self.gone:
            return
        if self.has_begun or self.connection.writable is not None:
            self.connection.close()
            return
        self.keep_alive = False
        self.respond_now(status, self.connection.front.error_body(reason))
