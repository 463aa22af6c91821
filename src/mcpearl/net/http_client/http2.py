"""HTTP/2 on one connection, shared by the streams on it, each an exchange of its own.

h2 makes and reads the frames. This module adds what h2 leaves open: what the end of a stream or of the
connection means for an exchange, how much is buffered, and how much a server may send that belongs to no
exchange. It is loaded only when a server has chosen HTTP/2.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes

from mcpearl.net.addresses import tune
from mcpearl.net.http_client.exchange import ExchangeFailed, Header
from mcpearl.net.http_client.http2_frames import ClientFrames, error_name, request_head
from mcpearl.net.http_client.http2_stream import Http2Stream
from mcpearl.net.http_client.uploads import Uploads
from mcpearl.net.unread import DOES_NOT_READ
from mcpearl.runtime.liveness import Keepalive, Watch

if TYPE_CHECKING:
    from mcpearl.net.http_client.pool import ConnectionPool

_WINDOW = 1024 * 1024  # bytes the server may have on their way, for all streams together
_MAX_NOISE = 256 * 1024  # bytes in `_NOISE_SPAN` seconds that serve no exchange
_PER_FRAME = 32  # bytes added for each frame, since many small frames are more work
_NOISE_SPAN = 10.0
_MAX_UNREAD = 4 * 1024 * 1024  # bytes a server may leave unread; bodies wait long before that
_LAST_STREAM = 2**31 - 1
_QUIET = 30.0  # seconds of silence, while streams are open, before a ping
_PONG = 10.0  # seconds for the answer to a ping


class Http2Connection(asyncio.Protocol):
    """One connection, shared by as many streams as the server takes at once."""

    attentive = True  # the connection is always read; the windows bound what arrives

    def __init__(self, pool: "ConnectionPool", authority: str) -> None:
        self._pool = pool
        self._authority = authority
        self._loop = asyncio.get_running_loop()
        self._h2 = ClientFrames()
        self._transport: Any = None
        # Done when the server's settings are known.
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._streams: set[Http2Stream] = set()  # handed out and not released
        self._sent: dict[int, Http2Stream] = {}  # of these, by number, those with a request sent
        self._uploads = Uploads(self._h2, self._flush)
        self._retired = False  # no new streams
        self._error: ExchangeFailed | None = None
        self._goodbye = ""  # the error of the server's GOAWAY, appended to reasons
        self._free_since = self._loop.time()
        self._owed = 0  # bytes received, and not returned to the connection's window yet
        self._noise = 0
        self._noise_since = self._loop.time()
        self.heard_at = self._loop.time()
        self._watch: Watch | None = None  # set while streams are open

    # Streams

    async def introduced(self) -> None:
        """Wait for the server's settings, which say how many streams it takes."""
        await self._greeted

    @property
    def max_streams(self) -> int:
        """How many streams the server takes at once."""
        return self._h2.remote_settings.max_concurrent_streams

    @property
    def has_room(self) -> bool:
        """Whether the server takes one more stream."""
        return len(self._streams) < self.max_streams

    def usable(self, max_idle: float) -> bool:
        """Whether the server will most likely keep it open until a request arrives."""
        fresh = bool(self._streams) or self._loop.time() - self._free_since < max_idle
        numbers = self._h2.highest_outbound_stream_id < _LAST_STREAM - 2
        return fresh and numbers and not self._retired and not self._transport.is_closing()

    @property
    def _is_unused(self) -> bool:
        return not self._streams and not self._h2.highest_outbound_stream_id

    def stream(self) -> Http2Stream:
        """Return a new stream, which takes one place until it is released."""
        stream = Http2Stream(self)
        self._streams.add(stream)
        if self._watch is None:
            self._watch = Watch(self._loop, self, Keepalive(interval=_QUIET, patience=_PONG))
        return stream

    def begin(
        self, stream: Http2Stream, method: str, target: str, headers: list[Header], body: bytes
    ) -> int:
        """Send the head of a request, and as much of its body as the server takes."""
        if self._error is not None:
            raise ExchangeFailed(self._error.reason, sent=False)
        head = request_head(method, target, self._authority, headers, len(body))
        limit = self._h2.remote_settings.max_header_list_size
        if limit is not None and sum(len(name) + len(value) + 32 for name, value in head) > limit:
            reason = f"the headers of the request are over the {limit} bytes the server takes"
            raise ExchangeFailed(reason, sent=False)
        number = self._h2.get_next_available_stream_id()
        try:
            self._h2.send_headers(number, head, end_stream=not body)
        except ProtocolError as error:
            raise ExchangeFailed(f"the request could not be sent: {error}", sent=False) from None
        self._sent[number] = stream
        if body:
            self._uploads.add(number, body)
        self._flush()
        self._send_bodies()
        return number

    def is_uploading(self, number: int) -> bool:
        """Whether part of the body of a stream has not been sent yet."""
        return number in self._uploads

    def reopen(self, number: int, size: int) -> None:
        """Let the server send as much more on a stream as its reader has taken."""
        if self._error is not None:
            return
        with suppress(StreamClosedError):  # it has ended, but its event is not handled yet
            self._h2.increment_flow_control_window(size, number)
            self._flush()

    def reset(self, number: int, code: ErrorCodes) -> None:
        """End a stream, and notify the server at once."""
        if self._error is None:
            self._h2.reset_stream(number, code)
            self._flush()

    def over(self, stream: Http2Stream, number: int) -> None:
        """Forget a stream."""
        self._streams.discard(stream)
        self._sent.pop(number, None)
        self._uploads.drop(number)
        if not self._streams:
            self._free_since = self._loop.time()
            self._stop_watching()
            if self._retired:
                self.drop()
        self._pool.vacant()

    def retire(self) -> None:
        """Take no new streams, and close when the last one is over."""
        ended = self._retired or self._transport.is_closing()  # by the server
        self._retired = True
        self._pool.forget(self, refused=ended and self._is_unused)
        if not self._streams:
            self.drop()

    def drop(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    # Sending

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > _MAX_UNREAD:
                self._fail(DOES_NOT_READ)

    def _send_bodies(self) -> None:
        if self._uploads.send():
            self._noise = 0

    def pause_writing(self) -> None:
        """Hold bodies back."""
        self._uploads.blocked = True

    def resume_writing(self) -> None:
        """Send bodies again."""
        self._uploads.blocked = False
        self._send_bodies()

    # The loop's side

    def connection_made(self, transport: Any) -> None:
        """Send the preface and settings of this client."""
        self._transport = transport
        tune(transport.get_extra_info("socket"))
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW - 65_535)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Read frames."""
        if self._error is not None:
            return
        self.heard_at = self._loop.time()
        self._noise += len(data)
        try:
            events = self._h2.receive_data(data)
        except ProtocolError as error:
            self._flush()
            self._take_answers(self._h2.seen)
            self._fail(f"the server violated HTTP/2: {str(error) or type(error).__name__}")
            return
        self._noise += _PER_FRAME * self._h2.frames
        for event in events:
            handle = _HANDLERS.get(type(event))
            if handle is not None:
                handle(self, event)
        self._bound_noise()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the exchanges under way."""
        self._fail("the server closed the connection" + (f" ({exc})" if exc is not None else ""))
        self._pool.forget(self)
        self._stop_watching()

    def _fail(self, reason: str) -> None:
        """End the connection and every exchange on it; only the first reason counts."""
        if self._error is None:
            self._error = ExchangeFailed(reason + self._goodbye, sent=True)
            self._retired = True
            self._uploads.clear()
            self._pool.forget(self, refused=self._is_unused)
            self._transport.abort()
            if not self._greeted.done():
                self._greeted.set_exception(self._error)
                self._greeted.exception()  # `introduced` may have been cancelled
            begun = set(self._sent.values())
            for stream in self._streams:
                stream.failed(reason + self._goodbye, sent=stream in begun)

    def _bound_noise(self) -> None:
        """Drop a server that sends too much that belongs to no exchange."""
        if self.heard_at - self._noise_since > _NOISE_SPAN:
            self._noise_since, self._noise = self.heard_at, 0
        elif self._noise > _MAX_NOISE:
            self._fail(f"the server sent over {_MAX_NOISE} bytes that serve no request")

    # Liveness

    def ping(self, patience: float) -> bool:
        """Ping the server: a quiet stream does not show whether the server is alive."""
        if self._error is not None:
            return False
        self._h2.ping(b"mcpearl?")
        self._flush()
        return True

    def silent(self, patience: float) -> None:
        """End the connection: the server is gone."""
        self._fail(f"the server did not answer a ping within {patience:g} s")

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    # Events

    def _on_settings(self, event: RemoteSettingsChanged) -> None:
        if not self._greeted.done():
            self._greeted.set_result(None)
            self._free_since = self._loop.time()
        if SettingCodes.MAX_CONCURRENT_STREAMS in event.changed_settings:
            self._pool.vacant()
        self._send_bodies()

    def _on_window(self, event: WindowUpdated) -> None:
        if self._uploads:
            self._send_bodies()

    def _on_head(self, event: ResponseReceived) -> None:
        self._noise = 0
        stream = self._sent.get(event.stream_id)
        if stream is not None:
            stream.on_head(event.headers)

    def _on_data(self, event: DataReceived) -> None:
        if event.data:
            self._noise = 0
        self._owed += event.flow_controlled_length
        if self._owed >= _WINDOW // 2:  # a slow reader is bounded by the window of its stream
            self._h2.increment_flow_control_window(self._owed)
            self._owed = 0
        stream = self._sent.get(event.stream_id)
        if stream is not None:
            stream.on_data(event.data, event.flow_controlled_length)

    def _take_answers(self, events: list[Any]) -> None:
        """Pass on the answers that came before a violation in the same piece: a whole answer counts."""
        for event in events:
            stream = self._sent.get(getattr(event, "stream_id", None) or 0)
            if stream is None:
                continue
            if isinstance(event, ResponseReceived):
                stream.on_head(event.headers)
            elif isinstance(event, DataReceived):
                stream.on_data(event.data, len(event.data))
            elif isinstance(event, StreamEnded):
                stream.on_end()

    def _on_end(self, event: StreamEnded) -> None:
        stream = self._sent.get(event.stream_id)
        if stream is not None:
            stream.on_end()

    def _on_reset(self, event: StreamReset) -> None:
        self._uploads.drop(event.stream_id)
        stream = self._sent.get(event.stream_id)
        if stream is not None:
            stream.on_reset(event.error_code)

    def _on_goodbye(self, event: ConnectionTerminated) -> None:
        """Take no new streams. Those that the server will not handle count as not sent."""
        code = event.error_code or ErrorCodes.NO_ERROR
        if code:
            said = (event.additional_data or b"").decode("latin-1")
            self._goodbye = f" after {error_name(code)}" + (f": {said!r:.128}" if said else "")
        last = event.last_stream_id or 0
        for number, stream in list(self._sent.items()):
            if number > last:
                self._uploads.drop(number)
                stream.failed("the server takes no more requests" + self._goodbye, sent=False)
        if not self._greeted.done():
            self._fail("the server takes no requests")
        self._retired = True
        self.retire()


_HANDLERS: dict[type, Callable[[Http2Connection, Any], None]] = {
    RemoteSettingsChanged: Http2Connection._on_settings,
    WindowUpdated: Http2Connection._on_window,
    ResponseReceived: Http2Connection._on_head,
    DataReceived: Http2Connection._on_data,
    StreamEnded: Http2Connection._on_end,
    StreamReset: Http2Connection._on_reset,
    ConnectionTerminated: Http2Connection._on_goodbye,
}
