"""One stream of server-sent events on its way out: the answer to a POST, or a standing stream.

A stream has at most one reader, the response that writes it at the moment; a new one displaces it.
Events wait at the reader. A `KeptStream` also has its events in an `EventStore`: it outlives its reader,
and the next one continues where the last one stopped. What waits at a reader is bounded: a sender can
wait until there is room; a reader that falls too far behind is cut off.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from mcpearl.net.sse import format_event, format_retry
from mcpearl.net.unread import high_water
from mcpearl.runtime.budget import UNCOUNTED, Account, Holding
from mcpearl.runtime.late import LateWatch
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.events import EventStore, StoredEvent

MAX_WAITING = 1000  # events that may wait at a reader
MAX_CHUNK = 256 * 1024  # bytes handed to the wire at once, unless a single event has more


class StreamReader:
    """Reads a stream for one response. It owns the events that wait for the response."""

    __slots__ = (
        "_holding",
        "_retry",
        "_taken",
        "_wake",
        "is_left_behind",
        "queue",
        "size",
        "stream",
    )

    def __init__(self, stream: "EventStream", events: Iterable[StoredEvent] = ()) -> None:
        self.stream = stream
        self.is_left_behind = False  # events it had not taken were dropped
        self.queue: deque[StoredEvent] = deque(events)  # what was not taken yet
        self.size = sum(len(message) for _, message in self.queue)  # bytes of that
        self._taken = 0  # bytes of the chunk that was taken last, which is being sent
        self._holding: Holding | None = None  # while much waits
        if self.size > UNCOUNTED:
            self._has_room()
        self._retry: int | None = None  # set to make the client leave and come back
        self._wake: asyncio.Future[None] | None = None

    @property
    def is_current(self) -> bool:
        """Whether this is still the stream's reader."""
        return self.stream.reader_now is self

    # Filled by the stream

    def push(self, number: int, message: bytes) -> bool:
        """Queue an event. If too much waits already, drop the queue and return False."""
        if self.is_left_behind:
            return False
        queue = self.queue
        queue.append((number, message))
        self.size += len(message)
        if self._wake is not None:
            self.wake()
        if self.size <= self.stream.little and len(queue) <= MAX_WAITING:
            return True
        return self._has_room()

    def _has_room(self) -> bool:
        """Count what waits. If it is too much, drop it and return False."""
        queue = self.queue
        if len(queue) > 1 and (self.size > self.stream.limit or len(queue) > MAX_WAITING):
            self._fall_behind()
            return False
        if not self._count():
            self._fall_behind()
        return not self.is_left_behind

    def _count(self) -> bool:
        """Count what waits and what is being sent, if it is much."""
        size = self.size + self._taken
        if size <= UNCOUNTED:
            self._release()
            return True
        if self._holding is None:
            self._holding = self.stream.account.open("streams")
        return self._holding.resize(size)

    def _fall_behind(self) -> None:
        self.is_left_behind = True
        self.queue.clear()
        self.size = 0
        self._release()

    def _release(self) -> None:
        if self._holding is not None:
            self._holding.release()
            self._holding = None

    def send_away(self, retry_ms: int) -> None:
        """End the response after what waits, and tell the client when to come back."""
        self._retry = retry_ms
        self.wake()

    def wake(self) -> None:
        """Make `wait` look again."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # Used by the response

    def take(self) -> bytes:
        """Return a chunk of what waits, as bytes to write."""
        if not self.is_current:
            return b""
        queue, stream = self.queue, self.stream
        parts: list[bytes] = []
        size = number = 0
        while queue and size < MAX_CHUNK:
            number, message = queue.popleft()
            self.size -= len(message)
            event = format_event(message, "" if stream.id is None else f"{stream.id}.{number}")
            parts.append(event)
            size += len(event)
        self._taken = size
        if self._holding is not None:
            self._count()
        if number:
            stream.taken(number)
        if self._retry is not None and not queue:
            parts.append(format_retry(self._retry))
        return b"".join(parts)

    @property
    def finished(self) -> bool:
        """Whether nothing more will be queued for this reader."""
        over = self.stream.ended or self._retry is not None
        return over or self.is_left_behind or not self.is_current

    @property
    def is_over(self) -> bool:
        """Whether everything was taken and nothing will follow."""
        return self.finished and not self.has_news

    @property
    def has_news(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self.queue) and self.is_current

    async def wait(self, silence: LateWatch) -> bool:
        """Wait for news or the end; return False when there was neither for too long."""
        if self._is_awake():
            return True
        self._taken = 0
        if self._holding is not None:
            self._count()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wake = future
        silence.add(self)
        try:
            await future
        finally:
            silence.discard(self)
            self._wake = None
        return self._is_awake()

    def _is_awake(self) -> bool:
        return self.has_news or self.finished

    def late(self) -> None:
        """Note that the stream has been silent for long."""
        self.wake()

    def close(self) -> None:
        """Stop reading."""
        self._release()
        self.stream.detach(self)


class EventStream:
    """A stream that is not kept: what its reader does not get is lost."""

    __slots__ = (
        "_much",
        "_room",
        "account",
        "ended",
        "last",
        "limit",
        "little",
        "overrun",
        "reader_now",
    )

    id: str | None = None
    """The name of the stream in event ids; without it, events have no ids."""

    def __init__(self, limit: int, account: Account) -> None:
        self.limit = limit  # bytes that may wait at a reader
        self.little = min(limit, UNCOUNTED)  # bytes up to which nothing is checked
        self.account = account  # counts them
        self._much = high_water(limit)
        self.ended = False
        self.overrun = False  # the reader was cut off, and with it the stream
        self.last = 0  # the number of the newest event
        self.reader_now: StreamReader | None = None
        self._room: asyncio.Event | None = None  # while senders wait for the reader

    @property
    def read(self) -> bool:
        """Whether a response reads the stream now."""
        return self.reader_now is not None

    def prime(self) -> None:
        """Do nothing. A stream that can be resumed begins with an empty event, for its id."""

    def put(self, message: bytes) -> None:
        """Add one message."""
        if not self.ended:
            self.heard(self.last + 1, message)

    def end(self) -> None:
        """Note that nothing more will come."""
        self.over()

    def heard(self, number: int, message: bytes) -> None:
        """Hand an event to the reader."""
        self.last = number
        reader = self.reader_now
        if reader is not None and not reader.push(number, message):
            self._cut_off()

    def _cut_off(self) -> None:
        self.overrun = True
        self.over()

    def over(self) -> None:
        """End the stream for its reader."""
        self.ended = True
        if self.reader_now is not None:
            self.reader_now.wake()
        self._make_room()

    def send_away(self, retry_ms: int) -> None:
        """Make the client close its connection and come back after a while."""
        if self.reader_now is not None:
            self.reader_now.send_away(retry_ms)

    # Readers

    def reader(self, events: Iterable[StoredEvent] = ()) -> StreamReader:
        """Return a new reader that starts with these events, and displace the one there is."""
        before, self.reader_now = self.reader_now, StreamReader(self, events)
        if before is not None:
            before.wake()
        self._make_room()
        return self.reader_now

    def detach(self, reader: StreamReader) -> None:
        """Note that a reader stopped reading; for a displaced reader this changes nothing."""
        if self.reader_now is reader:
            self.reader_now = None
            self._make_room()

    def taken(self, number: int) -> None:
        """Note that the reader took everything up to a number."""
        self._make_room()

    # Room

    @property
    def is_full(self) -> bool:
        """Whether so much waits for a reader that senders should wait."""
        reader = self.reader_now
        if reader is None or self.ended:
            return False
        return reader.size > self._much or len(reader.queue) > MAX_WAITING // 2

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


class KeptStream(EventStream):
    """A stream of a session: its events are in the event store, and readers can come back.

    What is put into it reaches the reader by way of the store, once the store allows it to be sent.
    """

    __slots__ = ("_confirm", "_events", "_leaving", "_session", "id")

    def __init__(
        self,
        id: str,
        limit: int,
        session: str,
        events: EventStore,
        account: Account,
        confirm: float = 0.0,
    ) -> None:
        """Open a stream.

        Args:
            id: Its name in the session.
            limit: Bytes that may wait at a reader.
            session: The id of the session.
            events: The store that keeps its events.
            account: Counts what waits at a reader.
            confirm: Seconds after which what a reader took is noted as read, for clients that may come
                back without a position.
        """
        super().__init__(limit, account)
        self.id: str = id
        self._confirm = confirm
        self._leaving: asyncio.Task[None] | None = None  # sends the reader away
        self._session = session
        self._events = events
        events.follow(session, id, self)

    def prime(self) -> None:
        """Begin with an empty event, whose id the client can come back with, unless one was sent."""
        if not self.last:
            self.put(b"")

    def put(self, message: bytes) -> None:
        """Add one message."""
        if not self.ended:
            self._events.append(self._session, self.id, message)

    def end(self) -> None:
        """Note that nothing more will come; what is kept stays readable."""
        if not self.ended:
            self._events.end(self._session, self.id)

    def _cut_off(self) -> None:
        """Let the stream go on without the reader, which fell behind."""

    def send_away(self, retry_ms: int) -> None:
        """Make the client come back, once the events are stored that it will ask for."""
        if self._events.durable:
            loop = asyncio.get_running_loop()
            self._leaving = loop.create_task(self._send_away(self.reader_now, retry_ms))
        else:
            super().send_away(retry_ms)

    async def _send_away(self, reader: StreamReader | None, retry_ms: int) -> None:
        with suppress(StoreUnavailable):  # then it has no position yet, and stays
            await self._events.stored(self._session, self.id)
            if reader is not None:
                reader.send_away(retry_ms)

    def detach(self, reader: StreamReader) -> None:
        """Note that a reader stopped reading, here and in the store."""
        if self.reader_now is reader:
            self._events.stop_reading(self._session, self.id)
        super().detach(reader)

    def taken(self, number: int) -> None:
        """Note what was taken, here and in the store."""
        if self._confirm:
            loop = asyncio.get_running_loop()
            loop.call_later(self._confirm, self._confirmed, self.reader_now, number)
        else:
            self._events.mark_read(self._session, self.id, number)
        self._make_room()

    def _confirmed(self, reader: StreamReader | None, number: int) -> None:
        """Note what a reader took, if it is still there: then it was not sent to a dead connection."""
        if reader is not None and self.reader_now is reader:
            self._events.mark_read(self._session, self.id, number)

    async def resume(self, after: int | None) -> StreamReader:
        """Return a reader that continues after an event, or with what was never read.

        Raises:
            EventsLost: Events after this one are gone.
        """
        known = self.last
        events, last, ended = await self._events.after(self._session, self.id, after)
        while known <= last < self.last:  # the store took its time, and more was heard meanwhile
            more, last, ended = await self._events.after(self._session, self.id, last or None)
            events += more
        self.last = last
        self.ended = self.ended or ended
        return self.reader(events)

    def close(self) -> None:
        """End the stream in this process; what is kept stays in the store."""
        self._events.unfollow(self._session, self.id, self)
        self.over()
