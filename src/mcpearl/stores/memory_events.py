"""Event history in memory, within one byte budget for all streams.

When the budget is used up, whole ended streams are dropped first, in the order they ended; then the
oldest events of open streams. Each session has a share, so that one session cannot use up the budget. A
stream that ended and was read to its end is kept for another minute, in case its last bytes did not reach
the client.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import islice

from mcpearl.runtime import clock
from mcpearl.runtime.budget import Budget
from mcpearl.runtime.keeper import Keeper
from mcpearl.runtime.tree import Node
from mcpearl.stores.events import EventsLost, Follower, StoredEvent, StoredEvents

MAX_EVENTS = 1000  # kept of one stream
MAX_READ = 1024 * 1024  # bytes kept of what was read already, per stream
MAX_ENDED = 32  # streams of one session that have ended and are still kept
EVENT_SIZE = 128  # approximate bytes of an event in addition to its message
_STEP = 64 * 1024  # sizes are reported to the budget in multiples of this many bytes
STREAM_SIZE = 1024  # approximate bytes of an ended stream in addition to its events


class _MemoryStream:
    """One stream and its followers."""

    __slots__ = ("ended", "events", "followers", "name", "next", "read", "session", "size")

    def __init__(self, session: "_SessionStreams", name: str) -> None:
        self.session = session
        self.name = name
        self.events: deque[StoredEvent] = deque()
        self.size = 0
        self.next = 1
        self.read = 0  # the newest event a reader took
        self.ended = False
        self.followers: tuple[Follower, ...] = ()

    @property
    def first(self) -> int:
        """The number of the oldest kept event, or of the next event when none is kept."""
        return self.events[0][0] if self.events else self.next


class _SessionStreams:
    """The streams of one session, in the order they began."""

    __slots__ = ("ended", "id", "size", "streams")

    def __init__(self, id: str) -> None:
        self.id = id
        self.size = 0
        self.ended = 0  # how many of the streams have ended
        self.streams: dict[str, _MemoryStream] = {}


class MemoryEventStore:
    """An `EventStore` that ends with the process."""

    durable = False

    def __init__(
        self,
        max_bytes: int = 256 * 1024 * 1024,
        max_session_bytes: int = 64 * 1024 * 1024,
        linger: float = 60.0,
        budget: Budget | None = None,
    ) -> None:
        """Create an empty store.

        Args:
            max_bytes: Bytes kept of all streams together.
            max_session_bytes: Bytes kept of the streams of one session.
            linger: Seconds a stream is kept after it ended and was read to its end.
            budget: The memory budget of the server. Streams are dropped when others need the room.
        """
        self._max = max_bytes
        self._share = min(max_session_bytes, max_bytes)
        self._linger = linger
        self.size = 0
        self._history = (budget or Budget()).history(self._give_way)
        self._counted = 0  # bytes the budget knows of
        self._sessions: dict[str, _SessionStreams] = {}
        self._open: OrderedDict[_MemoryStream, None] = OrderedDict()  # with events, not ended
        self._ended: OrderedDict[_MemoryStream, None] = OrderedDict()
        self._done: OrderedDict[_MemoryStream, float] = (
            OrderedDict()
        )  # ended and read; when to drop it
        self._keeper = Keeper("streams that were read whole", self._sweep)

    def node(self) -> Node:
        """Return the node of the supervision tree that drops streams that were read."""
        return self._keeper.node()

    # Writing

    def begin(self, session: str, stream: str, last_words: Sequence[bytes]) -> None:
        """Do nothing: streams end with the process."""

    def announce(
        self, session: str, stream: str, message: bytes, position: str | None = None
    ) -> None:
        """Append an announcement: no other process can have done so."""
        self.append(session, stream, message)

    def append(self, session: str, stream: str, message: bytes) -> None:
        """Keep an event and hand it to the followers."""
        owner = self._sessions.get(session)
        kept = None if owner is None else owner.streams.get(stream)
        if kept is None or owner is None:
            kept = self._stream(session, stream)
            owner = kept.session
        if kept.ended:
            return
        number = kept.next
        kept.next = number + 1
        events = kept.events
        if not events:
            self._open[kept] = None
        events.append((number, message))
        size = len(message) + EVENT_SIZE
        kept.size += size
        owner.size += size
        self.size += size
        if len(events) > MAX_EVENTS:
            self._drop_oldest(kept)
        if self.size > self._max or owner.size > self._share:
            self._keep_bounds(owner)
        if self.size > self._counted:
            self._count()
        for follower in kept.followers:
            follower.heard(number, message)

    def end(self, session: str, stream: str) -> None:
        """Close a stream for writing; it stays readable."""
        kept = self._stream(session, stream)
        if kept.ended:
            return
        kept.ended = True
        self._open.pop(kept, None)
        self._ended[kept] = None
        self._grow(kept, STREAM_SIZE)
        kept.session.ended += 1
        if kept.session.ended > MAX_ENDED:
            self._remove(next(each for each in kept.session.streams.values() if each.ended))
        for follower in kept.followers:
            follower.over()
        if kept.next == 1:
            self._remove(kept)  # it has no events, so there is nothing to resume
        elif kept.read == kept.next - 1:
            self._finish(kept)
        if self.size > self._max:
            self._keep_bounds(kept.session)
        if self.size > self._counted:
            self._count()

    async def stored(self, session: str, stream: str) -> None:
        """Return at once: memory is all the safety this store offers."""

    # Reading

    def follow(self, session: str, stream: str, follower: Follower) -> None:
        """Hand events that are appended from now on to a follower."""
        self._stream(session, stream).followers += (follower,)

    def unfollow(self, session: str, stream: str, follower: Follower) -> None:
        """Stop handing events to a follower."""
        kept = self._find(session, stream)
        if kept is not None:
            kept.followers = tuple(each for each in kept.followers if each is not follower)

    def stop_reading(self, session: str, stream: str) -> None:
        """Do nothing: followers receive every event in any case."""

    def mark_read(self, session: str, stream: str, number: int) -> None:
        """Note what was read; of the events that were read, keep only the newest."""
        kept = self._find(session, stream)
        if kept is None or number <= kept.read:
            return
        kept.read = number
        while kept.size > MAX_READ and kept.first <= number and kept.events:
            self._drop_oldest(kept)
        if kept.ended and number == kept.next - 1:
            self._finish(kept)

    async def after(self, session: str, stream: str, number: int | None) -> StoredEvents:
        """Return what is kept after a position."""
        kept = self._find(session, stream)
        if kept is None:
            raise EventsLost(f"there is no stream {stream[:64]!r}")
        if number is None:
            number = max(kept.read, kept.first - 1)
        elif not 0 < number < kept.next:
            raise EventsLost(f"stream {stream!r} has no event {number}")
        elif number < kept.first - 1:
            raise EventsLost(f"events of stream {stream!r} after {number} are no longer kept")
        events = list(islice(kept.events, number + 1 - kept.first, None))
        return StoredEvents(events, kept.next - 1, kept.ended)

    # Forgetting

    def leave(self, session: str, stream: str) -> None:
        """Do nothing: announcements never wait here."""

    def forget(self, session: str) -> None:
        """Drop a session with its streams."""
        found = self._sessions.get(session)
        if found is not None:
            for kept in list(found.streams.values()):
                self._remove(kept)

    async def close(self) -> None:
        """Drop everything."""
        for session in list(self._sessions):
            self.forget(session)
        self._keeper.stop()
        self._history.close()

    def _find(self, session: str, stream: str) -> _MemoryStream | None:
        found = self._sessions.get(session)
        return None if found is None else found.streams.get(stream)

    def _stream(self, session: str, stream: str) -> _MemoryStream:
        """Return a stream; create it if it is unknown."""
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = _SessionStreams(session)
        kept = found.streams.get(stream)
        if kept is None:
            kept = found.streams[stream] = _MemoryStream(found, stream)
        return kept

    def _grow(self, stream: _MemoryStream, size: int) -> None:
        stream.size += size
        stream.session.size += size
        self.size += size

    def _drop_oldest(self, stream: _MemoryStream) -> None:
        """Drop the oldest event of a stream."""
        _, message = stream.events.popleft()
        self._grow(stream, -len(message) - EVENT_SIZE)
        if not stream.events:
            self._open.pop(stream, None)

    def _remove(self, stream: _MemoryStream) -> None:
        """Drop a stream whole."""
        session = stream.session
        self._grow(stream, -stream.size)
        if self._counted - self.size > _STEP:
            self._count()
        stream.events.clear()
        for index in (self._open, self._ended, self._done):
            index.pop(stream, None)
        del session.streams[stream.name]
        session.ended -= stream.ended
        if not session.streams:
            self._sessions.pop(session.id, None)

    def _keep_bounds(self, session: _SessionStreams) -> None:
        """Bring a session back to its share, then all sessions within the limit."""
        if session.size > self._share:
            self._shrink(session)
        while self.size > self._max:
            self._make_room()

    def _shrink(self, session: _SessionStreams) -> None:
        """Drop the ended streams of a session, then its oldest events; each stream keeps its newest."""
        streams = list(session.streams.values())
        for stream in streams:
            if session.size > self._share and stream.ended:
                self._remove(stream)
        for stream in streams:
            while session.size > self._share and not stream.ended and len(stream.events) > 1:
                self._drop_oldest(stream)

    def _count(self) -> None:
        """Tell the budget the size, rounded up so that this is not needed for each event."""
        self._counted = -(-self.size // _STEP) * _STEP
        self._history.resize(self._counted)

    def _give_way(self, size: int) -> None:
        """Drop at least `size` bytes, or everything, to make room for something else."""
        aim = max(self._counted - size, 0) // _STEP * _STEP
        while self.size > aim and (self._ended or self._open):
            self._make_room()
        self._count()

    def _make_room(self) -> None:
        """Drop the stream that ended first, or else the oldest event of the oldest open stream."""
        if self._ended:
            self._remove(next(iter(self._ended)))
        else:
            self._drop_oldest(next(iter(self._open)))

    def _finish(self, stream: _MemoryStream) -> None:
        """Drop a stream after `linger` seconds: it ended and was read to its end."""
        self._done[stream] = clock.monotonic() + self._linger
        self._keeper.wake(self._linger)

    def _sweep(self) -> float | None:
        now = clock.monotonic()
        while self._done:
            stream, due = next(iter(self._done.items()))
            if due > now:
                return due - now
            self._remove(stream)
        return None
