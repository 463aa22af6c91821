"""Writes server-sent events, and reads them incrementally by the WHATWG rules.

The reader supports all three line endings, comments, multi-line data, `id`, `retry` and a byte order
mark. An event over the size limit is reported in its place, and the stream continues after it.
"""

from msgspec import Struct

KEEP_ALIVE = b":\r\n\r\n"
_LONGEST_FIELD = len(b"data: ")
_COMMENT = b":"


class ServerSentEvent(Struct, frozen=True):
    """A dispatched event. `id` is the last one seen, which may be that of an earlier event."""

    data: bytes
    event: str = "message"
    id: str = ""


class OversizedEvent(Struct, frozen=True):
    """An event that was longer than allowed, without its content."""

    limit: int


AnyEvent = ServerSentEvent | OversizedEvent


def format_event(data: bytes, id: str = "", event: str = "") -> bytes:
    """Return one event as bytes. `data` is a JSON message, so it has no line breaks."""
    head = b""
    if event:
        head += b"event: %b\r\n" % event.encode()
    if id:
        head += b"id: %b\r\n" % id.encode()
    return b"%bdata: %b\r\n\r\n" % (head, data)


def format_retry(milliseconds: int) -> bytes:
    """Return the field that tells a reader how long to wait before it reconnects."""
    return b"retry: %d\r\n\r\n" % milliseconds


class EventReader:
    """Reads a stream of events incrementally.

    >>> reader = EventReader(max_event=1_000_000)
    >>> for event in reader.feed(chunk): ...
    """

    __slots__ = (
        "_data",
        "_event",
        "_id",
        "_line",
        "_max",
        "_overlong",
        "_oversized",
        "_skip_lf",
        "_start",
        "last_id",
        "retry",
    )

    def __init__(self, max_event: int) -> None:
        self._max = max_event
        self._line = bytearray()  # the unfinished line; only its first byte if it is overlong
        self._overlong = False  # the unfinished line is longer than an event may be
        self._skip_lf = False  # the last bytes ended in CR; a LF that follows is of the same line
        self._start = True  # no line was read yet, so a byte order mark may come
        # The data of the event so far: None before its first line, copied only from the second on.
        self._data: bytes | bytearray | None = None
        self._event = ""
        self._id = ""  # takes effect once its event is complete
        self._oversized = False
        self.last_id = ""
        """The id to resume with after the stream breaks."""
        self.retry: int | None = None
        """Milliseconds to wait before reconnecting, as the server last asked."""

    def feed(self, data: bytes) -> list[AnyEvent]:
        """Take bytes as they were read; return the events they complete."""
        if self._skip_lf and data:
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        if data[-1:] == b"\r":
            self._skip_lf = True
        events: list[AnyEvent] = []
        # `splitlines` would also split at other characters; SSE has only these three.
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._line or self._overlong or self._start or len(line) > self._max:
                self._extend(line)
                self._end_line(events)
            elif line:
                self._field(*line.split(b":", 1))
            else:
                self._dispatch(events)
        self._extend(rest)
        return events

    def restart(self) -> None:
        """Prepare for a new stream that continues this one."""
        self._line.clear()
        self._overlong = self._skip_lf = False
        self._start = True
        self._id = self.last_id
        self._clear()

    def _extend(self, part: bytes) -> None:
        if self._overlong:
            return
        self._line += part
        if len(self._line) > self._max + _LONGEST_FIELD:
            self._overlong = True
            del self._line[1:]

    def _end_line(self, events: list[AnyEvent]) -> None:
        line, self._line = bytes(self._line), bytearray()
        if self._start:
            self._start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if self._overlong:
            self._overlong = False
            self._oversized = self._oversized or line != _COMMENT
        elif line:
            self._field(*line.split(b":", 1))
        else:
            self._dispatch(events)

    def _field(self, name: bytes, value: bytes = b"") -> None:
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry = int(value)

    def _add(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
        elif not self._oversized:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._max:
            self._oversized = True
            self._data = b""

    def _dispatch(self, events: list[AnyEvent]) -> None:
        self.last_id = self._id
        if self._oversized:
            events.append(OversizedEvent(self._max))
        elif self._data is not None:
            events.append(ServerSentEvent(bytes(self._data), self._event or "message", self._id))
        self._clear()

    def _clear(self) -> None:
        self._data = None
        self._event = ""
        self._oversized = False
