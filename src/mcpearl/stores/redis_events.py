"""Events of resumable streams in Redis: any process resumes them, also after their producer died.

A stream is two keys: its events, and a hash that says how far it is, which process reads it, and which
one produces it with what last words. Events of one stream are written in order, together as they
gather, and repeated without harm when a reply was lost. One process at a time reads a stream; one that
appends to it elsewhere tells the reader, which then looks.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.events import EventsLost, Follower, StoredEvent, StoredEvents
from mcpearl.stores.redis_bus import RedisBus
from mcpearl.stores.redis_event_scripts import (
    AFTER,
    ANNOUNCE,
    APPEND,
    END_WITH,
    FORGET,
    LEAVE,
    READ,
)
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import RedisMembers
from mcpearl.stores.redis_sessions import digest_of

logger = logging.getLogger("mcpearl.stores")

MAX_EVENTS = 1000  # kept of one stream
MAX_BYTES = 8 * 1024 * 1024  # kept of one stream
MAX_STREAMS = 64  # of one session that are kept; those that have not ended are kept in any case
KEPT_FOR = 3600  # seconds a stream is kept after its last event
LINGER = 60  # seconds it is kept after it ended and was read whole
MAX_UNWRITTEN = 1000  # events of one stream that wait to be written
MAX_ANNOUNCED = 10_000  # announcements of one stream whose positions are known
_READ_DELAY = 0.2  # seconds in which what was read is noted
_TOPIC = "events"

_Notice = tuple[str, str, int]


class _RedisStream:
    """What this process does with one stream: it writes to it, follows it, or both."""

    __slots__ = (
        "begun",
        "end_written",
        "ending",
        "followers",
        "heard",
        "last_words",
        "looking",
        "name",
        "over",
        "producer",
        "read",
        "reads",
        "sequence",
        "session",
        "unwritten",
        "writer",
        "writing",
    )

    def __init__(self, session: str, name: str, writer: str) -> None:
        self.session = session
        self.name = name
        self.writer = writer  # what the sequence belongs to
        self.followers: tuple[Follower, ...] = ()
        self.heard: int | None = None  # the newest event that the followers know of
        self.unwritten: list[bytes] = []
        self.sequence = 0  # of the last event of this process that is written
        self.ending = False  # nothing may be appended any more
        self.end_written = False
        self.over = False
        self.writing: asyncio.Task[None] | None = None
        self.looking: asyncio.Task[None] | None = None  # for events of other processes
        self.last_words: Sequence[bytes] | None = None
        self.begun = False  # the last words are stored
        self.producer = 0  # another process that produces it
        self.read = 0
        self.reads = False  # other processes tell this one when they append


class RedisEventStore:
    """An `EventStore` for all machines of a deployment.

    Args:
        link: The connection.
        bus: Tells readers of a stream that it has grown.
        members: Tells which processes live.
    """

    durable = True

    def __init__(self, link: RedisLink, bus: RedisBus, members: RedisMembers) -> None:
        self._link = link
        self._bus = bus
        self._members = members
        self._streams: dict[tuple[str, str], _RedisStream] = {}
        self._count = 0  # of the streams so far
        self._dirty: set[_RedisStream] = set()  # read further than is noted
        self._noting: asyncio.TimerHandle | None = None
        self._keeping: asyncio.TimerHandle | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._stop: Callable[[], None] | None = None
        members.when_dead(self._died)

    def start(self) -> None:
        """Begin to hear of streams that others append to."""
        self._stop = self._bus.receive(_TOPIC, self._grown)
        self._keep_read()

    def _keep_read(self) -> None:
        """Keep streams that are read here from expiring, however quiet they are."""
        loop = asyncio.get_running_loop()
        self._keeping = loop.call_later(KEPT_FOR / 4, self._keep_read)
        for stream in self._streams.values():
            if stream.reads:
                for key in self._keys(stream.session, stream.name):
                    keeping = self._link.send("PEXPIRE", key, KEPT_FOR * 1000)
                    self._link.post(keeping, "a stream that is read may expire")

    def _stream(self, session: str, name: str) -> _RedisStream:
        found = self._streams.get((session, name))
        if found is None:
            self._count += 1
            writer = f"{self._members.number}.{self._count}"
            found = self._streams[session, name] = _RedisStream(session, name, writer)
        return found

    def _keys(self, session: str, stream: str) -> list[str]:
        owner = digest_of(session)
        key = self._link.key_of
        return [key(owner, "m", stream), key(owner, "e", stream), key(owner, "streams")]

    def _settle(self, stream: _RedisStream) -> None:
        """Forget about a stream that this process neither writes to nor follows."""
        busy = stream.followers or stream.unwritten or stream.writing is not None
        if not busy and stream not in self._dirty:
            self._streams.pop((stream.session, stream.name), None)

    # Writing

    def begin(self, session: str, stream: str, last_words: Sequence[bytes]) -> None:
        """Note the last words; they are stored with the first event."""
        self._stream(session, stream).last_words = last_words

    def append(self, session: str, stream: str, message: bytes) -> None:
        """Write an event; it goes to its reader once it is stored."""
        found = self._stream(session, stream)
        if found.over or found.ending:
            return
        if len(found.unwritten) >= MAX_UNWRITTEN:
            logger.error("%d events of a stream wait for the store; it ends", MAX_UNWRITTEN)
            found.unwritten.clear()
            self._end_here(found)
            return
        found.unwritten.append(message)
        self._write_soon(found)

    def end(self, session: str, stream: str) -> None:
        """Note the end of a stream together with its last events."""
        found = self._stream(session, stream)
        if not found.over and not found.ending:
            found.ending = True
            self._write_soon(found)

    def _write_soon(self, stream: _RedisStream) -> None:
        if stream.writing is None:
            stream.writing = asyncio.get_running_loop().create_task(self._write_all(stream))

    async def _write_all(self, stream: _RedisStream) -> None:
        try:
            while stream.unwritten or (stream.ending and not stream.end_written):
                try:
                    await self._write(stream)
                except StoreUnavailable as error:
                    logger.warning("events wait for the store: %s", error)
                    await self._link.until_up()
        finally:
            stream.writing = None
            self._settle(stream)

    async def _write(self, stream: _RedisStream) -> None:
        """Write what has gathered, in one step, and hand it over or tell its reader."""
        messages, ending, heard = list(stream.unwritten), stream.ending, stream.heard
        said = [] if stream.begun else [words.decode() for words in stream.last_words or ()]
        last, before, others = await self._link.run(
            APPEND,
            self._keys(stream.session, stream.name),
            (
                *(
                    stream.writer,
                    stream.sequence + 1,
                    int(ending),
                    stream.read,
                    self._members.number,
                ),
                *(MAX_EVENTS, MAX_BYTES, MAX_STREAMS, KEPT_FOR, LINGER),
                *(stream.name, msgspec.msgpack.encode(said) if said else b""),
                *messages,
            ),
        )
        stream.begun = True
        stream.sequence += len(messages)
        del stream.unwritten[: len(messages)]
        if last < 0:  # it was ended elsewhere
            stream.unwritten.clear()
            stream.ending = stream.end_written = True
            self._end_here(stream)
            return
        if int(before) < (heard or 0):
            self._lost(stream)
        self._written(stream, messages, int(before), last)
        for reader in others:
            self._tell(int(reader), stream, last)
        if ending:
            stream.end_written = True
            self._end_here(stream)

    def _written(self, stream: _RedisStream, messages: list[bytes], before: int, last: int) -> None:
        """Hand over what was written here, and before it what came from elsewhere."""
        if not stream.followers:
            stream.heard = last
        elif before == (before if stream.heard is None else stream.heard) and (
            last == before + len(messages)
        ):
            for number, message in enumerate(messages, before + 1):
                self._hand_over(stream, number, message)
        else:
            self._look_soon(stream)

    @staticmethod
    def _hand_over(stream: _RedisStream, number: int, message: bytes) -> None:
        if stream.heard is None or number > stream.heard:
            stream.heard = number
            for follower in stream.followers:
                follower.heard(number, message)

    def _end_here(self, stream: _RedisStream) -> None:
        stream.ending = True
        if stream.looking is not None or stream.over:
            return  # the look finds the end
        stream.over = True
        for follower in stream.followers:
            follower.over()

    def announce(
        self, session: str, stream: str, message: bytes, position: str | None = None
    ) -> None:
        """Append an announcement, unless a process has done that."""
        self._run_beside(self._announce(session, stream, message, position or ""))

    async def _announce(self, session: str, name: str, message: bytes, position: str) -> None:
        keys = [*self._keys(session, name), self._link.key_of(digest_of(session), "a", name)]
        given = (MAX_EVENTS, MAX_BYTES, KEPT_FOR, MAX_ANNOUNCED, name, message, position)
        while True:
            before = self._streams.get((session, name))
            heard = (before.heard if before is not None else None) or 0
            try:
                last, appended = await self._link.run(ANNOUNCE, keys, given)
                break
            except StoreUnavailable:
                await self._link.until_up()
        stream = self._streams.get((session, name))
        if stream is not None and stream is before and last - appended < heard:
            self._lost(stream)
        if stream is None or not stream.followers or last <= (stream.heard or 0):
            return  # every process that reads the stream announces the same
        if appended and stream.heard == last - 1 and stream.looking is None:
            self._hand_over(stream, last, message)
        else:
            self._look_soon(stream)

    async def stored(self, session: str, stream: str) -> None:
        """Wait until everything is written; raises `StoreUnavailable` while the server is away."""
        found = self._streams.get((session, stream))
        writing = None if found is None else found.writing
        while writing is not None and not writing.done():
            await asyncio.wait([writing], timeout=0.05)
            if not writing.done() and not self._link.is_up:
                raise StoreUnavailable("events could not be written yet")

    # Reading

    def follow(self, session: str, stream: str, follower: Follower) -> None:
        """Hand what is appended from now on to a follower."""
        self._stream(session, stream).followers += (follower,)

    def unfollow(self, session: str, stream: str, follower: Follower) -> None:
        """Hand over no more; the stream has no reader here."""
        found = self._streams.get((session, stream))
        if found is None or follower not in found.followers:
            return
        found.followers = tuple(each for each in found.followers if each is not follower)
        if not found.followers:
            self._leave(found)
            self._dirty.discard(found)
            self._settle(found)

    def stop_reading(self, session: str, stream: str) -> None:
        """Leave a stream that has no reader here any more; what is appended elsewhere is not heard."""
        found = self._streams.get((session, stream))
        if found is not None:
            self._leave(found)

    def _leave(self, stream: _RedisStream) -> None:
        if not stream.reads:
            return
        stream.reads = False
        keys = self._keys(stream.session, stream.name)
        leaving = self._link.run(LEAVE, keys, (self._members.number, stream.read))
        self._link.post(leaving, "a stream could not be left")

    def mark_read(self, session: str, stream: str, number: int) -> None:
        """Note what was read, soon: many notes are one."""
        found = self._stream(session, stream)
        if number <= found.read:
            return
        found.read = number
        self._dirty.add(found)
        if self._noting is None:
            loop = asyncio.get_running_loop()
            self._noting = loop.call_later(_READ_DELAY, self._note_read)

    def _note_read(self) -> None:
        self._noting = None
        dirty, self._dirty = self._dirty, set()
        for stream in dirty:
            keys = self._keys(stream.session, stream.name)
            self._link.post(
                self._link.run(READ, keys, (stream.read, LINGER)), "what was read was not noted"
            )
            self._settle(stream)

    async def after(self, session: str, stream: str, number: int | None) -> StoredEvents:
        """Return what is kept after a position; from now on this process reads the stream."""
        found = self._streams.get((session, stream))
        read = 0 if found is None else found.read
        heard = 0 if found is None else found.heard or 0
        reply = await self._after(session, stream, "" if number is None else number, read)
        last, ended, producer, events, readers = reply
        if found is not None and last < heard:
            self._lost(found)
        if producer and not ended and not await self._members.is_alive(producer):
            await self._end_for(session, stream, producer)
            reply = await self._after(session, stream, "" if number is None else number, read)
            last, ended, producer, events, _ = reply
        for reader in readers:
            if not await self._members.is_alive(reader):  # it did not leave by itself
                self._link.post(
                    self._link.run(LEAVE, self._keys(session, stream), (reader, 0)),
                    "a dead reader of a stream is still noted",
                )
        found = self._streams.get((session, stream))
        if found is not None:
            found.reads = True
            found.producer = 0 if producer == self._members.number else producer
            found.heard = max(found.heard or 0, last)
        return StoredEvents(events, last, ended)

    async def _after(
        self, session: str, stream: str, position: int | str, read: int, registers: bool = True
    ) -> tuple[int, bool, int, list[StoredEvent], list[int]]:
        reader = self._members.number if registers else 0
        reply = await self._link.run(
            AFTER, self._keys(session, stream), (position, read, reader, KEPT_FOR, stream)
        )
        match reply[0]:
            case b"unknown":
                raise EventsLost(f"there is no stream {stream[:64]!r}")
            case b"never":
                raise EventsLost(f"stream {stream!r} has no event {position}")
            case b"gone":
                raise EventsLost(f"events of stream {stream!r} after {position} are no longer kept")
        _, last, ended, producer, entries, readers = reply
        events = [(int(id.partition(b"-")[0]), fields[1]) for id, fields in entries]
        others = [int(each) for each in readers]
        return int(last), bool(ended), int(producer or 0), events, others

    def _tell(self, reader: int, stream: _RedisStream, last: int) -> None:
        """Tell the process that reads a stream that it has grown."""
        notice = msgspec.json.encode((stream.session, stream.name, last))
        self._run_beside(self._tell_surely(reader, notice))

    async def _tell_surely(self, reader: int, notice: bytes) -> None:
        while True:
            try:
                await self._bus.pass_to(reader, _TOPIC, notice)
                return
            except StoreUnavailable:
                await self._link.until_up()

    def _grown(self, notice: bytes) -> None:
        session, name, _ = msgspec.json.decode(notice, type=_Notice)
        stream = self._streams.get((session, name))
        if stream is not None and stream.followers:
            self._look_soon(stream)

    def _look_soon(self, stream: _RedisStream) -> None:
        if stream.looking is None:
            stream.looking = asyncio.get_running_loop().create_task(self._look(stream))

    async def _look(self, stream: _RedisStream) -> None:
        """Hand over everything that was appended since, by whatever process."""
        try:
            while True:
                heard = stream.heard
                found = await self._after(
                    stream.session, stream.name, heard or "", 0, registers=False
                )
                last, ended, _, events, _ = found
                for number, message in events:
                    self._hand_over(stream, number, message)
                if last <= (stream.heard or 0):
                    break
        except EventsLost:
            ended = bool(stream.producer)  # then its outcome is lost; others go on with what comes
            self._lost(stream)
        except StoreUnavailable:
            ended = False
            await self._link.until_up()
            asyncio.get_running_loop().call_soon(self._look_soon, stream)
        finally:
            stream.looking = None
        if ended:
            self._end_here(stream)

    @staticmethod
    def _lost(stream: _RedisStream) -> None:
        """Go on with what the store has not noted as read: it lost newer events, as a failover may."""
        logger.warning("the store lost events of a stream; its reader goes on with what comes")
        stream.heard = stream.read = 0

    # Processes that die

    def _died(self, number: int) -> None:
        """Speak the last words of a dead process on streams that are read here; look at the others."""
        for stream in list(self._streams.values()):
            if stream.followers and stream.producer == number:
                self._run_beside(self._take_over(stream, number))
            elif stream.followers and stream.heard:
                self._look_soon(stream)

    async def _take_over(self, stream: _RedisStream, producer: int) -> None:
        await self._end_for(stream.session, stream.name, producer)
        self._look_soon(stream)

    async def _end_for(self, session: str, stream: str, producer: int) -> None:
        """End a stream for the process that died while it produced it."""
        await self._link.run(END_WITH, self._keys(session, stream), (producer, KEPT_FOR))

    def _run_beside(self, work: "asyncio.Future[None] | object") -> None:
        task = asyncio.get_running_loop().create_task(self._logged(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    @staticmethod
    async def _logged(work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except StoreUnavailable as error:
            logger.warning("a stream was not brought up to date: %s", error)

    # Forgetting

    def forget(self, session: str) -> None:
        """Drop a session with its streams."""
        for stream in [each for each in self._streams.values() if each.session == session]:
            stream.over = True
            stream.unwritten.clear()
            self._dirty.discard(stream)
            self._streams.pop((session, stream.name), None)
        owner, key = digest_of(session), self._link.key_of
        keys = [key(owner, "streams")]
        given = tuple(key(owner, kind, "") for kind in ("m", "e", "a"))
        self._link.post(self._link.run(FORGET, keys, given), "streams could not be deleted")

    async def close(self) -> None:
        """Write what waits if the server is there, and let go of the streams."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        if self._keeping is not None:
            self._keeping.cancel()
        if self._noting is not None:
            self._noting.cancel()
            self._note_read()
        writing = [each.writing for each in self._streams.values() if each.writing is not None]
        if writing and self._link.is_up:
            await asyncio.wait(writing, timeout=5.0)
        tasks = [*self._beside, *writing]
        tasks += [each.looking for each in self._streams.values() if each.looking is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._streams.clear()
