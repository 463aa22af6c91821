"""HTTP/1.1 on one connection: one exchange at a time, the answer read as it comes."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import httptools

from mcpearl.net.addresses import tune
from mcpearl.net.http_client.exchange import MAX_HEAD, ExchangeFailed, Header, note

if TYPE_CHECKING:
    from mcpearl.net.http_client.pool import ConnectionPool

_HIGH = 256 * 1024  # bytes of a body held for a reader that is behind; then the peer waits


class Http1Connection(asyncio.Protocol):
    """One connection, and on it one exchange: a request, then its answer read as it comes."""

    def __init__(self, wire: "ConnectionPool", host: str) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._fixed: list[Header] = [("Host", host)]
        self._prefix = ""  # of every target, towards a proxy
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None  # of the one who reads
        self._chunks: deque[bytes] = deque()
        self._held = 0  # bytes in `_chunks`
        self._paused = False
        self._free_since = self._loop.time()
        self._active = False  # between `send` and `release`
        self._overhead = 0  # bytes since there last was a body: headers, before it or after
        self._headed = False  # the answer's head is whole
        self._complete = False  # and so is its body
        self._reusable = False
        self._error: ExchangeFailed | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        """Of the answer, by name in lower case; of repeated ones the first."""

    def through_proxy(self, origin: str, headers: list[Header]) -> None:
        """Address everything to a proxy."""
        self._prefix = origin
        self._fixed += headers

    # Asking

    def usable(self, max_idle: float) -> bool:
        """Whether a request can be sent on it without meeting its end."""
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
            await self._more()

    async def chunk(self) -> bytes:
        """Give the next part of the body; nothing at its end."""
        while not self._chunks:
            if self._complete:
                return b""
            await self._more()
        chunk = self._chunks.popleft()
        self._held -= len(chunk)
        if self._paused and not self._chunks:
            self._paused = False
            self._transport.resume_reading()
        return chunk

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def release(self) -> None:
        """End the exchange. Where the answer is not over, the connection is cut."""
        if not self._active:
            return
        self._active = False
        self._chunks.clear()
        self._held = 0
        if self._paused or not self._reusable or self._transport.get_write_buffer_size():
            self.drop()
        else:
            self._free_since = self._loop.time()
            self._wire.keep(self)

    def drop(self) -> None:
        """Close the connection, now."""
        self._transport.abort()

    # What the loop says

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport
        tune(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if not self._active:
            self._fail("the server spoke without being asked")
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server switched to another protocol")
        except httptools.HttpParserError as error:
            self._fail(f"the server's answer is not HTTP: {str(error) or type(error).__name__}")
        if not self._complete and self._overhead > MAX_HEAD:
            self._fail(f"the server sent over {MAX_HEAD} bytes that say nothing")
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, which is also how a body without a length ends."""
        lengthless = "content-length" not in self.headers and (
            "transfer-encoding" not in self.headers
        )
        if self._headed and lengthless and exc is None and self._error is None:
            self._complete = True
        what = "its answer was complete" if self._headed else "it answered"
        why = f" ({exc})" if exc is not None else ""
        self._fail(f"the server closed the connection before {what}{why}")
        self._wire.forget(self)

    def _fail(self, reason: str) -> None:
        self._reusable = False
        if self._error is None:
            self._error = ExchangeFailed(reason, sent=True)
        self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the parser says

    def on_message_begin(self) -> None:
        """Two answers to one request are one too many."""
        if self._complete:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header. Those after a body are of no use here."""
        if not self._headed:
            note(self.headers, name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Note the head of the answer, unless it only announces the answer."""
        status = self._parser.get_status_code()
        if self._complete:
            return
        if status < 200:
            self.headers = {}
            return
        self.status = status
        self._headed = True

    def on_body(self, body: bytes) -> None:
        """Hold a part of the body; a peer ahead of its reader has to wait."""
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
    """Give the bytes before a body. Nothing in a value can end its header."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    head = "\r\n".join([*lines, "", ""])
    if head.count("\r") != len(lines) + 1 or head.count("\n") != len(lines) + 1 or "\0" in head:
        raise ValueError("a line break or NUL in a header")
    return head.encode("utf-8", "replace")
