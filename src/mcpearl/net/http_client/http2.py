"""HTTP/2 on one connection, and the streams on it, each an exchange of its own.

The frames are h2's affair. Here is what it leaves open: who reads and who waits, how much is held for
whom, what the end of a stream or of the connection means to an exchange, and how much nonsense is
listened to. Loaded only when a server chose HTTP/2.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from h2.config import H2Configuration
from h2.connection import H2Connection
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
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from hpack.struct import HeaderTuple, NeverIndexedHeaderTuple
from hyperframe.frame import Frame

from mcpearl.net.addresses import tune
from mcpearl.net.http_client.exchange import MAX_HEAD, ExchangeFailed, Header, note

if TYPE_CHECKING:
    from mcpearl.net.http_client.pool import ConnectionPool

_STREAM_WINDOW = 256 * 1024  # bytes of a body held for a reader that is behind; then the peer waits
_WINDOW = 1024 * 1024  # bytes on their way for all streams together, whoever is behind
_MAX_NOISE = 256 * 1024  # bytes that answer nothing and move nothing, in `_NOISE_SPAN` seconds
_NOISE_SPAN = 10.0
_MAX_UNREAD = 4 * 1024 * 1024  # bytes a server may leave unread; bodies wait long before that
_LAST_STREAM = 2**31 - 1
_QUIET = 30.0  # seconds without a word, while streams are open, until the server is asked
_PONG = 10.0  # seconds it has to answer
_OF_CONNECTIONS = frozenset(
    {"connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"}
)
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie"})


class Http2Connection(asyncio.Protocol):
    """One connection, shared by as many streams as the server takes at once."""

    def __init__(self, wire: "ConnectionPool", authority: str) -> None:
        self._wire = wire
        self._authority = authority
        self._loop = asyncio.get_running_loop()
        self._h2 = _Frames(_UNCHECKED)
        self._transport: Any = None
        self._greeted: asyncio.Future[None] = self._loop.create_future()  # its settings are known
        self._streams: set[Http2Stream] = set()  # given out and not released
        self._sent: dict[int, Http2Stream] = {}  # of these, those that were begun
        self._uploads: dict[int, Http2Stream] = {}  # of these, those with a body that waits
        self._blocked = False  # the system takes no more for now
        self._retired = False  # no new streams
        self._error: ExchangeFailed | None = None
        self._goodbye = ""  # what the server said when it took its leave
        self._free_since = self._loop.time()
        self._owed = 0  # bytes received and not given back to the connection's window yet
        self._noise = 0
        self._noise_since = self._loop.time()
        self._heard = self._loop.time()
        self._asked_at: float | None = None  # when a ping went out that may be unanswered
        self._watch: asyncio.TimerHandle | None = None

    # Streams

    async def introduced(self) -> None:
        """Wait for the server's settings, which say how much it takes."""
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
        """Whether a stream can be begun on it without meeting its end."""
        fresh = bool(self._streams) or self._loop.time() - self._free_since < max_idle
        numbers = self._h2.highest_outbound_stream_id < _LAST_STREAM - 2
        return fresh and numbers and not self._retired and not self._transport.is_closing()

    def stream(self) -> "Http2Stream":
        """Give out a stream; nobody else gets its place."""
        stream = Http2Stream(self)
        self._streams.add(stream)
        if self._watch is None:
            self._watch = self._loop.call_later(_QUIET, self._look)
        return stream

    def begin(
        self, stream: "Http2Stream", method: str, target: str, headers: list[Header], body: bytes
    ) -> int:
        """Send the head of a request, and of its body what may leave."""
        if self._error is not None:
            raise ExchangeFailed(self._error.reason, sent=False)
        head = _head(method, target, self._authority, headers, len(body))
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
            self._uploads[number] = stream
        self._flush()
        self._send_bodies()
        return number

    def opened(self, number: int, size: int) -> None:
        """Let the server send as much more on a stream as its reader has taken."""
        if self._error is not None:
            return
        with suppress(StreamClosedError):  # h2 is ahead of its events, and may know of the end
            self._h2.increment_flow_control_window(size, number)
            self._flush()

    def reset(self, number: int, code: ErrorCodes) -> None:
        """End a stream, and say so at once."""
        if self._error is None:
            self._h2.reset_stream(number, code)
            self._flush()

    def over(self, stream: "Http2Stream", number: int) -> None:
        """Forget a stream."""
        self._streams.discard(stream)
        self._sent.pop(number, None)
        self._uploads.pop(number, None)
        if not self._streams:
            self._free_since = self._loop.time()
            if self._retired:
                self.drop()
        self._wire.vacant()

    def retire(self) -> None:
        """Begin nothing new, and close when the last stream is over."""
        self._retired = True
        self._wire.forget(self)
        if not self._streams:
            self.drop()

    def drop(self) -> None:
        """Close the connection, now."""
        self._transport.abort()

    # Sending

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > _MAX_UNREAD:
                self._fail("the server does not read what it is sent")

    def _send_bodies(self) -> None:
        """Send of every body that waits, a frame of each in turn, while the server takes it."""
        moved = True
        while moved and self._uploads and not self._blocked and self._error is None:
            moved = False
            for number, stream in list(self._uploads.items()):
                try:
                    moved |= self._send_part(number, stream)
                except StreamClosedError:  # as above
                    del self._uploads[number]
            self._flush()

    def _send_part(self, number: int, stream: "Http2Stream") -> bool:
        room = min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size)
        if room <= 0:
            return False
        part, last = stream.next_part(room)
        self._h2.send_data(number, part, end_stream=last)
        if last:
            del self._uploads[number]
        self._noise = 0
        return True

    def pause_writing(self) -> None:
        """Hold bodies back."""
        self._blocked = True

    def resume_writing(self) -> None:
        """Send on."""
        self._blocked = False
        self._send_bodies()

    # What the loop says

    def connection_made(self, transport: Any) -> None:
        """Introduce this client."""
        self._transport = transport
        tune(transport.get_extra_info("socket"))
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW - 65_535)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self._error is not None:
            return
        self._heard = self._loop.time()
        self._noise += len(data)
        try:
            events = self._h2.receive_data(data)
        except ProtocolError as error:
            self._flush()
            self._fail(
                f"the server broke the rules of HTTP/2: {str(error) or type(error).__name__}"
            )
            return
        for event in events:
            handle = _HANDLERS.get(type(event))
            if handle is not None:
                handle(self, event)
        self._bound_noise()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is under way."""
        self._fail("the server closed the connection" + (f" ({exc})" if exc is not None else ""))
        self._wire.forget(self)
        if self._watch is not None:
            self._watch.cancel()

    def _fail(self, reason: str) -> None:
        """End the connection for everybody on it, the first time with a reason."""
        if self._error is None:
            self._error = ExchangeFailed(reason + self._goodbye, sent=True)
            self._retired = True
            self._wire.forget(self)
            self._transport.abort()
            if not self._greeted.done():
                self._greeted.set_exception(self._error)
                self._greeted.exception()  # whoever connected may have stopped waiting
            begun = set(self._sent.values())
            for stream in self._streams:
                stream.failed(reason + self._goodbye, sent=stream in begun)

    def _bound_noise(self) -> None:
        """Stop listening to a server that says much and means nothing."""
        if self._heard - self._noise_since > _NOISE_SPAN:
            self._noise_since, self._noise = self._heard, 0
        elif self._noise > _MAX_NOISE:
            self._fail(f"the server sent over {_MAX_NOISE} bytes that say nothing")

    def _look(self) -> None:
        """Look whether the server is still there, which a quiet stream would not tell."""
        self._watch = None
        if not self._streams:
            return
        now = self._loop.time()
        if self._asked_at is not None and self._heard < self._asked_at:
            self._fail(f"the server did not answer a ping within {_PONG:g} s")
            return
        quiet = now - self._heard
        if quiet >= _QUIET:
            self._asked_at = now
            self._h2.ping(b"mcpearl?")
            self._flush()
            self._watch = self._loop.call_later(_PONG, self._look)
        else:
            self._asked_at = None
            self._watch = self._loop.call_later(_QUIET - quiet, self._look)

    # What the server says

    def _on_settings(self, event: RemoteSettingsChanged) -> None:
        if not self._greeted.done():
            self._greeted.set_result(None)
        if SettingCodes.MAX_CONCURRENT_STREAMS in event.changed_settings:
            self._wire.vacant()
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
        if (
            self._owed >= _WINDOW // 2
        ):  # whoever is behind is stopped by the window of his own stream
            self._h2.increment_flow_control_window(self._owed)
            self._owed = 0
        stream = self._sent.get(event.stream_id)
        if stream is not None:
            stream.on_data(event.data, event.flow_controlled_length)

    def _on_end(self, event: StreamEnded) -> None:
        stream = self._sent.get(event.stream_id)
        if stream is not None:
            stream.on_end()

    def _on_reset(self, event: StreamReset) -> None:
        self._uploads.pop(event.stream_id, None)
        stream = self._sent.get(event.stream_id)
        if stream is not None:
            stream.on_reset(event.error_code)

    def _on_goodbye(self, event: ConnectionTerminated) -> None:
        """Begin nothing new. What the server will not look at any more can be asked elsewhere."""
        code = event.error_code or ErrorCodes.NO_ERROR
        if code:
            said = (event.additional_data or b"").decode("latin-1")
            self._goodbye = f" after {_name(code)}" + (f": {said!r:.128}" if said else "")
        last = event.last_stream_id or 0
        for number, stream in list(self._sent.items()):
            if number > last:
                self._uploads.pop(number, None)
                stream.failed("the server takes no more requests" + self._goodbye, sent=False)
        if not self._greeted.done():
            self._fail("the server takes no requests")
        self.retire()


class Http2Stream:
    """One stream: a request, then its answer read as it comes."""

    def __init__(self, connection: Http2Connection) -> None:
        self._connection = connection
        self._number = 0  # once it is begun
        self._open = True  # until `release`
        self._unsent = memoryview(b"")
        self._waiter: asyncio.Future[None] | None = None  # of the one who reads
        self._body = bytearray()  # received and not read
        self._taken = 0  # bytes read and not given back to the window yet
        self._headed = False  # the answer's head is whole
        self._complete = False  # and so is its body
        self._over = False  # for the server too: there is nothing to cancel
        self._error: ExchangeFailed | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        """Of the answer, by name in lower case; of repeated ones the first."""

    def send(self, method: str, target: str, headers: list[Header], body: bytes = b"") -> None:
        """Send a request; what the server's windows do not take yet leaves later."""
        if self._error is not None:
            raise self._error
        self._unsent = memoryview(body)
        self._number = self._connection.begin(self, method, target, headers, body)

    def next_part(self, room: int) -> tuple[memoryview, bool]:
        """Give what is to be sent of the body, and whether that is all."""
        part, self._unsent = self._unsent[:room], self._unsent[room:]
        return part, not self._unsent

    async def answered(self) -> None:
        """Wait for the head of the answer: `status` and `headers`."""
        while not self._headed:
            await self._more()

    async def chunk(self) -> bytes:
        """Give the next part of the body; nothing at its end."""
        while not self._body:
            if self._complete:
                return b""
            await self._more()
        part = bytes(self._body)
        self._body.clear()
        self._give_back(len(part))
        return part

    def _give_back(self, size: int) -> None:
        self._taken += size
        if self._taken >= _STREAM_WINDOW // 2 and not (self._complete or self._over):
            self._connection.opened(self._number, self._taken)
            self._taken = 0

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def release(self) -> None:
        """End the exchange. Where the answer is not over, the server is told at once."""
        if not self._open:
            return
        self._open = False
        unfinished = not self._complete or bool(self._unsent)
        if self._number and unfinished and not self._over:
            self._connection.reset(self._number, ErrorCodes.CANCEL)
        self._body.clear()
        self._connection.over(self, self._number)

    # What the connection says

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
        """Hold a part of the body; the window sees to it that it is not much."""
        self._body += data
        if size > len(data):
            self._give_back(size - len(data))  # padding, which nobody reads
        if data:
            self._wake()

    def on_end(self) -> None:
        """Note the end of the answer."""
        self._complete = True
        self._wake()

    def on_reset(self, code: ErrorCodes | int | None) -> None:
        """Note that the server ended the stream, or broke the rules on it."""
        self._over = True
        self._unsent = memoryview(b"")
        if self._complete:  # the rest of the request was not wanted
            return
        hint = "; turn HTTP/2 off" if code == ErrorCodes.HTTP_1_1_REQUIRED else ""
        refused = code == ErrorCodes.REFUSED_STREAM and not self._headed
        what = "its answer was complete" if self._headed else "it answered"
        self.failed(
            f"the server ended the stream before {what} ({_name(code)}{hint})", sent=not refused
        )

    def failed(self, reason: str, *, sent: bool) -> None:
        """Note that no more will come."""
        if self._error is None and not self._complete:
            self._error = ExchangeFailed(reason, sent=sent)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Incoming(FrameBuffer):
    """h2's, but a frame that is too large is refused before all of it is there."""

    def __next__(self) -> Frame:
        if len(self._data) >= 3:
            self._validate_frame_length(int.from_bytes(self._data[:3], "big"))
        return super().__next__()


class _Frames(H2Connection):
    """h2, but a GOAWAY does not end what is under way, as it does there."""

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self.incoming_buffer = _Incoming()
        self.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEAD,
            },
        )

    def _receive_goaway_frame(self, frame: Any) -> Any:
        state = self.state_machine.state
        told = super()._receive_goaway_frame(frame)
        self.state_machine.state = state
        return told

    def clear_outbound_data_buffer(self) -> None:
        """Keep what is to be sent: streams go on after a GOAWAY."""


# Names and values of requests are checked and put into form by `_head`, once.
_UNCHECKED = H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)

_HANDLERS: dict[type, Callable[[Http2Connection, Any], None]] = {
    RemoteSettingsChanged: Http2Connection._on_settings,
    WindowUpdated: Http2Connection._on_window,
    ResponseReceived: Http2Connection._on_head,
    DataReceived: Http2Connection._on_data,
    StreamEnded: Http2Connection._on_end,
    StreamReset: Http2Connection._on_reset,
    ConnectionTerminated: Http2Connection._on_goodbye,
}


def _head(
    method: str, target: str, authority: str, headers: list[Header], length: int
) -> list[HeaderTuple]:
    """Put the head of a request into form. Nothing in a value can end its header further on."""
    pairs = [(":method", method), (":scheme", "https"), (":authority", authority)]
    pairs.append((":path", target))
    for name, value in headers:
        lower = name.lower()
        if not lower or lower[0] == ":" or any(each in lower for each in " \r\n\0"):
            raise ValueError(f"not the name of a header: {name!r:.64}")
        if lower not in _OF_CONNECTIONS:
            pairs.append((lower, value.strip()))
    if length:
        pairs.append(("content-length", str(length)))
    if any(each in value for _, value in pairs for each in "\r\n\0"):
        raise ValueError("a line break or NUL in a header")
    return [
        (NeverIndexedHeaderTuple if name in _SECRET else HeaderTuple)(
            name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        )
        for name, value in pairs
    ]


def _name(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else f"error {code}"
