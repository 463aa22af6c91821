"""One stream of server-sent events on its way out: the answer to a POST, or a standing stream.

Events are numbered and wait in order for whoever reads them. A resumable stream outlives its
reader: it keeps the last events, and a new reader goes on where the old one stopped. What waits is
bounded: who says something can wait until there is room, and where that is not done, a reader that
falls behind loses the stream, not the server its memory.
"""

import asyncio
from collections import deque
from itertools import islice

from mcpearl.net.sse import format_event, format_retry
from mcpearl.net.watermark import high_water
from mcpearl.runtime.late import LateWatch

MAX_KEPT = 1000
MAX_CHUNK = 256 * 1024  # bytes handed to the wire at once, unless one event has more
MAX_HISTORY = 1024 * 1024  # bytes kept of what was read already, for a reader that comes back


class EventStream:
    """Events of one stream. `id` is its name in event ids; without one it cannot be resumed."""

    __slots__ = (
        "_bytes",
        "_events",
        "_limit",
        "_next",
        "_reader",
        "_retry",
        "_room",
        "_taken",
        "_unread",
        "_wake",
        "ended",
        "id",
        "overrun",
        "read",
    )

    def __init__(self, id: str | None, limit: int) -> None:
        self.id = id
        self.ended = False
        self.overrun = False
        self.read = False  # whether a response reads it now
        self._limit = limit  # bytes that may wait
        self._events: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._next = 1
        self._taken = 0  # the newest event any reader took
        self._unread = 0  # bytes of those that are newer
        self._room: asyncio.Event | None = None  # there while somebody waits for some
        self._reader = 0  # the newest reader; older ones end
        self._retry: int | None = None  # set to send the reader away for a while
        self._wake: asyncio.Future[None] | None = None

    def prime(self) -> None:
        """Begin with an empty event, so that a reader has an id to come back with."""
        if self.id is not None and self._next == 1:
            self._append(b"")

    def put(self, message: bytes) -> None:
        """Add one message."""
        if not self.ended:
            self._append(message)

    def end(self) -> None:
        """Note that nothing more will come."""
        self.ended = True
        self.wake()
        self._make_room()

    def send_away(self, retry_ms: int) -> None:
        """Let the reader close its connection and come back after a while."""
        self._retry = retry_ms
        self.wake()

    def _append(self, message: bytes) -> None:
        number = self._next
        self._next = number + 1
        event = format_event(message, "" if self.id is None else f"{self.id}.{number}")
        self._events.append((number, event))
        self._bytes += len(event)
        self._unread += len(event)
        if self.id is not None:
            while len(self._events) > 1 and self._is_crowded():
                self._drop()
        elif self._bytes > self._limit and len(self._events) > 1:
            self.overrun = self.ended = True
            self._events.clear()
            self._bytes = self._unread = 0
            self._make_room()
        self.wake()

    def _is_crowded(self) -> bool:
        return self._bytes > self._limit or len(self._events) > MAX_KEPT

    def _drop(self) -> None:
        number, dropped = self._events.popleft()
        self._bytes -= len(dropped)
        if number > self._taken:
            self._unread -= len(dropped)

    def _note_taken(self, number: int, size: int) -> None:
        """Keep of what was read as much as a reader that comes back may want."""
        if number > self._taken:
            self._taken = number
            self._unread = max(0, self._unread - size)
            self._make_room()
        kept = 0 if self.id is None else MAX_HISTORY
        while self._bytes > kept and self._events[0][0] <= self._taken:
            self._drop()

    # Room

    @property
    def is_full(self) -> bool:
        """Whether so much waits for a reader that is there that no more should be said for now."""
        if not self.read or self.ended:
            return False
        count = self._next - 1 - self._taken
        return self._unread > high_water(self._limit) or count > MAX_KEPT // 2

    async def until_room(self) -> None:
        """Wait until the reader has caught up, or left."""
        while self.is_full:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def _make_room(self) -> None:
        if self._room is not None and not self.is_full:
            self._room.set()
            self._room = None

    # Reading

    def wake(self) -> None:
        """Let whoever waits for news look again."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    @property
    def size(self) -> int:
        """How many bytes it keeps."""
        return self._bytes

    def reader(self, after: int) -> "StreamReader":
        """Read from behind an event number; whoever read before is sent away."""
        if self._reader:
            self._retry = None  # back again; the first reader may have to leave at once
        self._reader += 1
        self.read = True
        self.wake()
        return StreamReader(self, self._reader, after)

    def unread_from(self) -> int:
        """Where a new reader of a standing stream begins: with what nobody has read."""
        return max(self._taken, self._events[0][0] - 1) if self._events else self._taken

    def can_resume(self, after: int) -> bool:
        """Whether nothing behind this number is lost already."""
        if not 0 < after < self._next:
            return False
        return not self._events or self._events[0][0] <= after + 1


class StreamReader:
    """One response's way through a stream."""

    __slots__ = ("_number", "_position", "is_left_behind", "stream")

    def __init__(self, stream: EventStream, number: int, after: int) -> None:
        self.stream = stream
        self.is_left_behind = False  # something it had not taken yet was dropped
        self._number = number
        self._position = after

    @property
    def current(self) -> bool:
        """Whether this is still the stream's reader."""
        return self.stream._reader == self._number

    def take(self) -> bytes:
        """Give what waits, a chunk at a time, as bytes to write; to one reader only."""
        stream = self.stream
        if not self.current:
            return b""
        events = stream._events
        parts: list[bytes] = []
        if events and events[0][0] > self._position + 1:
            self.is_left_behind = True
            return b""
        if events:
            # Numbers are without gaps, so what was read is a prefix.
            begin = self._position + 1 - events[0][0]
            size = 0
            for number, event in islice(events, begin, None):
                parts.append(event)
                self._position = number
                size += len(event)
                if size >= MAX_CHUNK:
                    break
            stream._note_taken(self._position, size)
        if stream._retry is not None:
            parts.append(format_retry(stream._retry))
        return b"".join(parts)

    @property
    def finished(self) -> bool:
        """Whether the response is over: the stream ended, or the reader was sent or left behind."""
        stream = self.stream
        return stream.ended or stream._retry is not None or not self.current or self.is_left_behind

    @property
    def is_over(self) -> bool:
        """Whether everything was taken and nothing will come."""
        return self.finished and not self.has_news

    @property
    def has_news(self) -> bool:
        """Whether something waits that this reader has not taken."""
        events = self.stream._events
        if self.is_left_behind or not events:
            return False
        return events[-1][0] > self._position and self.current

    def close(self) -> None:
        """Read no further."""
        if self.current:
            self.stream.read = False
            self.stream._make_room()

    def _awake(self) -> bool:
        return self.has_news or self.finished

    async def wait(self, silence: LateWatch) -> bool:
        """Wait for news; False when there are none for too long a silence."""
        stream = self.stream
        if self._awake():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stream._wake = future
        silence.add(self)
        try:
            await future
            return self._awake()
        finally:
            silence.discard(self)
            if stream._wake is future:
                stream._wake = None

    def late(self) -> None:
        """Note that it has been silent for long."""
        self.stream.wake()
