"""One stream of an HTTP/2 connection: a request, then its answer read as it arrives."""

import asyncio
from typing import TYPE_CHECKING, Any

from h2.errors import ErrorCodes

from mcpearl.net.http_client.exchange import ExchangeFailed, Header, note
from mcpearl.net.http_client.http2_frames import STREAM_WINDOW, error_name

if TYPE_CHECKING:
    from mcpearl.net.http_client.http2 import Http2Connection


class Http2Stream:
    """One exchange, on a stream of its own."""

    def __init__(self, connection: "Http2Connection") -> None:
        self._connection = connection
        self._number = 0  # the stream's, once the request is sent
        self._open = True  # until `release`
        self._waiter: asyncio.Future[None] | None = None  # the reader waits for it
        self._body = bytearray()  # received and not read
        self._taken = 0  # bytes read, and not returned to the window yet
        self._headed = False  # the answer's head is whole
        self._complete = False  # and so is its body
        self._reset = False  # the server ended the stream: there is nothing to cancel
        self._error: ExchangeFailed | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        """Headers of the answer by lower-case name, as in `HttpExchange`."""

    def send(self, method: str, target: str, headers: list[Header], body: bytes = b"") -> None:
        """Send a request; the part that the server's windows do not allow yet is sent later."""
        if self._error is not None:
            raise self._error
        self._number = self._connection.begin(self, method, target, headers, body)

    async def answered(self) -> None:
        """Wait for the head of the answer: `status` and `headers`."""
        while not self._headed:
            await self._news()

    async def chunk(self) -> bytes:
        """Return the next part of the body; empty at its end."""
        while not self._body:
            if self._complete:
                return b""
            await self._news()
        part = bytes(self._body)
        self._body.clear()
        self._reopen(len(part))
        return part

    def _reopen(self, size: int) -> None:
        """Return bytes to the window of the stream, many at a time."""
        self._taken += size
        if self._taken >= STREAM_WINDOW // 2 and not (self._complete or self._reset):
            self._connection.reopen(self._number, self._taken)
            self._taken = 0

    def _news(self) -> "asyncio.Future[None]":
        """Return a future that is done when something has arrived; raise if nothing will arrive."""
        if self._error is not None:
            raise self._error
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        return waiter

    def release(self) -> None:
        """End the exchange. If it is not complete, the server is notified at once."""
        if not self._open:
            return
        self._open = False
        unfinished = not self._complete or self._connection.is_uploading(self._number)
        if self._number and unfinished and not self._reset:
            self._connection.reset(self._number, ErrorCodes.CANCEL)
        self._body.clear()
        self._connection.over(self, self._number)

    # The connection's side

    def on_head(self, headers: Any) -> None:
        """Note the head of the answer."""
        for name, value in headers:
            note(self.headers, name.decode("latin-1"), value.decode("latin-1"))
        status = self.headers.pop(":status", "")
        if not (len(status) == 3 and status.isdecimal() and status.isascii()):
            self.failed(f"the server answered with the status {status!r:.32}", sent=True)
            return
        self.status = int(status)
        self._headed = True
        self._wake()

    def on_data(self, data: bytes, size: int) -> None:
        """Hold a part of the body; the window bounds how much."""
        self._body += data
        if size > len(data):
            self._reopen(size - len(data))  # padding, which is never read
        if data:
            self._wake()

    def on_end(self) -> None:
        """Note the end of the answer."""
        self._complete = True
        self._wake()

    def on_reset(self, code: ErrorCodes | int | None) -> None:
        """Note that the server ended the stream, or violated the protocol on it."""
        self._reset = True
        if self._complete:  # the rest of the request was not wanted
            return
        hint = "; turn HTTP/2 off" if code == ErrorCodes.HTTP_1_1_REQUIRED else ""
        refused = code == ErrorCodes.REFUSED_STREAM and not self._headed
        what = "its answer was complete" if self._headed else "it answered"
        self.failed(
            f"the server ended the stream before {what} ({error_name(code)}{hint})",
            sent=not refused,
        )

    def failed(self, reason: str, *, sent: bool) -> None:
        """Note that the exchange failed."""
        if self._error is None and not self._complete:
            self._error = ExchangeFailed(reason, sent=sent)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
