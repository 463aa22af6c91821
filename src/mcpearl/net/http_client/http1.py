"""HTTP/1.1 on one connection: one exchange at a time, the answer read as it arrives."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import httptools

from mcpearl.net.addresses import tune
from mcpearl.net.http_client.exchange import MAX_HEAD, ExchangeFailed, Header, note

if TYPE_CHECKING:
    from mcpearl.net.http_client.pool import ConnectionPool

_HIGH = 256 * 1024  # unread bytes of a body at which reading from the server pauses
_END_OF_HEAD = b"\r\n\r\n"


class AnswerHeads:
    """Heads of earlier answers. Servers repeat themselves, and a known head is not parsed again.

    Bounded: the head learned longest ago is forgotten first.
    """

    __slots__ = ("_heads", "_longest", "_most")

    def __init__(self, most: int = 32, longest: int = 1024) -> None:
        self._heads: dict[bytes, tuple[int, dict[str, str]]] = {}  # body length and headers
        self._most = most
        self._longest = longest

    def find(self, data: bytes) -> tuple[dict[str, str], bytes] | None:
        """Return headers and body, if `data` is exactly one answer with a known head (status 200)."""
        end = data.find(_END_OF_HEAD) + 4
        found = self._heads.get(data[:end])
        if found is None or len(data) != end + found[0]:
            return None
        return found[1], data[end:]

    def learn(self, data: bytes, headers: dict[str, str]) -> None:
        """Remember the head of `data`, which the parser found to be one whole answer with status 200."""
        end = data.find(_END_OF_HEAD) + 4
        length = len(data) - end
        if headers.get("content-length") == str(length) and end <= self._longest:
            if len(self._heads) >= self._most:
                del self._heads[next(iter(self._heads))]
            self._heads[data[:end]] = length, headers


class Http1Connection(asyncio.Protocol):
    """One connection, which is also the exchange on it: a request, then its answer."""

    def __init__(self, pool: "ConnectionPool", host: str) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._fixed: list[Header] = [("Host", host)]
        self._prefix = ""  # put before every target, if the connection is to a proxy
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None  # the reader waits for it
        self._told: Callable[[], None] | None = None  # called instead, see `post`
        self._chunks: deque[bytes] = deque()
        self._held = 0  # bytes in `_chunks`
        self._paused = False
        self._free_since = self._loop.time()
        self._active = False  # between `send` and `release`
        self._fresh = False  # nothing of the answer has arrived
        self._overhead = 0  # bytes since the last part of a body: headers, or trailers
        self._headed = False  # the answer's head is whole
        self._complete = False  # and so is its body
        self._reusable = False
        self._error: ExchangeFailed | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        """Headers of the answer by lower-case name, as in `HttpExchange`."""

    def through_proxy(self, origin: str, headers: list[Header]) -> None:
        """Send every request in the form for a proxy: the target with the origin, and its headers."""
        self._prefix = origin
        self._fixed += headers

    # Asking

    def usable(self, max_idle: float) -> bool:
        """Whether the server will most likely keep it open until a request arrives."""
        fresh = self._loop.time() - self._free_since < max_idle
        return fresh and self._error is None and not self._transport.is_closing()

    def send(self, method: str, target: str, headers: list[Header], body: bytes = b"") -> None:
        """Send a request."""
        self._begin()
        length = [("Content-Length", str(len(body)))] if body else []
        head = format_head(method, self._prefix + target, [*self._fixed, *headers, *length])
        self._transport.write(head + body)

    def head_of_post(self, target: str, headers: list[Header]) -> bytes:
        """Return the head of a POST for `post`, which may use it again and again.

        It is the same on every connection of a pool.
        """
        return format_head("POST", self._prefix + target, [*self._fixed, *headers])[:-2]

    def post(self, head: bytes, body: bytes, told: "Callable[[], None]") -> None:
        """Send a POST. `told` is called once: when the answer's head has arrived, or never will.

        Args:
            head: What `head_of_post` returned.
            body: The body.
            told: Called by the event loop; it may read the answer, and `release` the connection.
        """
        self._begin()
        self._told = told
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))

    def _begin(self) -> None:
        self._active = self._fresh = True
        self._overhead = 0
        self._headed = self._complete = self._reusable = False
        self.status = 0
        self.headers = {}

    async def answered(self) -> None:
        """Wait for the head of the answer: `status` and `headers`."""
        self._told = None  # from now on the reader waits itself
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

    def whole(self) -> bytes | None:
        """Return the whole body, if it has arrived in one piece; None if it has to be read."""
        if not self._complete or self._paused or self._error is not None or len(self._chunks) != 1:
            return None
        return self._chunks[0]

    def _news(self) -> "asyncio.Future[None]":
        """Return a future that is done when something has arrived; raise if nothing will arrive."""
        if self._error is not None:
            raise self._error
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def release(self) -> None:
        """End the exchange. If the answer is not complete, the connection is closed at once."""
        if not self._active:
            return
        self._active = False
        self._told = None
        self._chunks.clear()
        self._held = 0
        if self._paused or not self._reusable or self._transport.get_write_buffer_size():
            self.drop()
        else:
            self._free_since = self._loop.time()
            self._pool.keep(self)

    def drop(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    # The loop's side

    def connection_made(self, transport: Any) -> None:
        """Keep the transport, and tune its socket."""
        self._transport = transport
        tune(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Read a part of the answer."""
        if not self._active:
            self._fail("the server sent something without a request")
            return
        fresh, self._fresh = self._fresh, False
        told = self._told if fresh else None
        if told is not None:
            known = self._pool.heads.find(data)
            if known is not None:
                self.status = 200
                self.headers, body = known
                self._headed = self._complete = self._reusable = True
                self._chunks.append(body)
                self._held = len(body)
                self._told = None
                told()
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
        if told is not None and self._reusable and self.status == 200 and not self._paused:
            self._pool.heads.learn(data, self.headers)
        self._tell()

    def _tell(self) -> None:
        """Notify the reader: something arrived, or the exchange failed."""
        told, waiter = self._told, self._waiter
        if told is not None:
            if self._headed or self._error is not None:
                self._told = None
                told()
        elif waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, which also ends a body without a length."""
        lengthless = "content-length" not in self.headers and (
            "transfer-encoding" not in self.headers
        )
        if self._headed and lengthless and exc is None and self._error is None:
            self._complete = True
        what = "its answer was complete" if self._headed else "it answered"
        why = f" ({exc})" if exc is not None else ""
        self._fail(f"the server closed the connection before {what}{why}")
        self._pool.forget(self)
        self._tell()

    def _fail(self, reason: str) -> None:
        self._reusable = False
        if self._error is None:
            self._error = ExchangeFailed(reason, sent=True)
        self._transport.abort()

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
        """Hold a part of the body; stop reading from the server while the reader is behind."""
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
