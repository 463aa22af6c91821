"""HTTP/1.1 on one connection: one exchange at a time, the answer read as it arrives."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import httptools

from mcpearl.net.addresses import tune
from mcpearl.net.http_client.exchange import MAX_HEAD, ExchangeFailed, Header, note

if TYPE_CHECKING:
    from mcpearl.net.http_client.pool import ConnectionPool

_HIGH = 256 * 1024  # unread bytes of a body at which reading from the server pauses


class Http1Connection(asyncio.Protocol):
    """One connection, which is also the exchange on it: a request, then its answer."""

    def __init__(self, pool: "ConnectionPool", host: str) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._fixed: list[Header] = [("Host", host)]
        self._prefix = ""  # of every target, if the connection is to a proxy
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None  # of the reader
        self._chunks: deque[bytes] = deque()
        self._held = 0  # bytes in `_chunks`
        self._paused = False
        self._free_since = self._loop.time()
        self._active = False  # between `send` and `release`
        self._overhead = 0  # bytes since the last part of a body: headers, or trailers
        self._headed = False  # the answer's head is whole
        self._complete = False  # and so is its body
        self._reusable = False
        self._error: ExchangeFailed | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        """Of the answer, by lower-case name; the first of repeated ones, except for challenges."""

    def through_proxy(self, origin: str, headers: list[Header]) -> None:
        """Send every request to a proxy, in its form."""
        self._prefix = origin
        self._fixed += headers

    # Asking

    def usable(self, max_idle: float) -> bool:
        """Whether the server will most likely not close it before a request arrives."""
        fresh = self._loop.time() - self._free_since < max_idle
        return fresh and self._error is None and not self._transport.is_closing()

    def send(self, method: str, target: str, headers: list[Header], body: bytes = b"") -> None:
        """Send a request."""
        self._active = True
        self._overhead = 0
        self._headed = self._complete = self._reusable = False
        self.status = 0
        self.headers = {}
        length = [("Content-Length", str(len(body)))] if body else []
        head = format_head(method, self._prefix + target, [*self._fixed, *headers, *length])
        self._transport.write(head + body)

    async def answered(self) -> None:
        """Wait for the head of the answer: `status` and `headers`."""
        while not self._headed:
            await self._news()

    async def chunk(self) -> bytes:
        """Return the next part of the body; empty at its end."""
        while not self._chunks:
            if self._complete:
                return b""
            await self._news()
        chunk = self._chunks.popleft()
        self._held -= len(chunk)
        if self._paused and not self._chunks:
            self._paused = False
            self._transport.resume_reading()
        return chunk

    def _news(self) -> "asyncio.Future[None]":
        """Return what is done when there is more to see, or raise why nothing will come."""
        if self._error is not None:
            raise self._error
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def release(self) -> None:
        """End the exchange. If the answer is not over, the connection is closed at once."""
        if not self._active:
            return
        self._active = False
        self._chunks.clear()
        self._held = 0
        if self._paused or not self._reusable or self._transport.get_write_buffer_size():
            self.drop()
        else:
            self._free_since = self._loop.time()
            self._pool.keep(self)

    def drop(self) -> None:
        """Close the connection, now."""
        self._transport.abort()

    # The loop's side

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport
        tune(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Read a part of the answer."""
        if not self._active:
            self._fail("the server sent something without a request")
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server switched to another protocol")
        except httptools.HttpParserError as error:
            self._fail(f"the server's answer is not HTTP: {str(error) or type(error).__name__}")
        if not self._complete and self._overhead > MAX_HEAD:
            self._fail(f"the server sent over {MAX_HEAD} bytes of headers")
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, which also ends a body without a length."""
        lengthless = "content-length" not in self.headers and (
            "transfer-encoding" not in self.headers
        )
        if self._headed and lengthless and exc is None and self._error is None:
            self._complete = True
        what = "its answer was complete" if self._headed else "it answered"
        why = f" ({exc})" if exc is not None else ""
        self._fail(f"the server closed the connection before {what}{why}")
        self._pool.forget(self)

    def _fail(self, reason: str) -> None:
        self._reusable = False
        if self._error is None:
            self._error = ExchangeFailed(reason, sent=True)
        self._transport.abort()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The parser's side

    def on_message_begin(self) -> None:
        """Do not reuse a connection on which the server sent a second answer."""
        if self._complete:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; trailers are ignored."""
        if self._headed:
            return
        key = name.decode("latin-1").lower()
        if key in self.headers:
            note(self.headers, key, value.decode("latin-1"))
        else:
            self.headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Note the head of the answer, unless it is an interim one."""
        status = self._parser.get_status_code()
        if self._complete:
            return
        if status < 200:
            self.headers = {}
            return
        self.status = status
        self._headed = True

    def on_body(self, body: bytes) -> None:
        """Hold a part of the body; the server waits when the reader is behind."""
        if self._complete or not self._active:
            return
        self._overhead = 0
        self._chunks.append(body)
        self._held += len(body)
        if self._held > _HIGH and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """Note the end of the answer."""
        if self._headed and not self._complete:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()


def format_head(method: str, target: str, headers: Iterable[Header]) -> bytes:
    """Return the bytes before a body; a line break or NUL in any part raises `ValueError`."""
    lines = [f"{method} {target} HTTP/1.1", *map(": ".join, headers), "", ""]
    head = "\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count("\r") != breaks or head.count("\n") != breaks or "\0" in head:
        raise ValueError("a line break or NUL in a header")
    return head.encode("utf-8", "replace")
