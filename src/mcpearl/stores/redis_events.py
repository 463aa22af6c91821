"""Events of resumable streams in Redis: any process can resume them, even after their producer died.

A stream has two keys: its events, and a hash with the newest number, the processes that read it, its
producer, and the producer's last words. Events of one stream are written in order and in batches; a
batch whose reply was lost is written again without harm. A process that appends to a stream notifies the
other processes that read it, and these then look for new events.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.events import EventsLost, Follower, StoredEvents
from mcpearl.stores.redis_announcements import Announcements
from mcpearl.stores.redis_bus import RedisBus
from mcpearl.stores.redis_event_steps import KEPT_FOR, EventSteps, Found
from mcpearl.stores.redis_event_stream import LocalStream
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import RedisMembers

logger = logging.getLogger("mcpearl.stores")

MAX_UNWRITTEN = 1000  # events of one stream that wait to be written
_READ_DELAY = 0.2  # seconds until the store is told what was read
_TOPIC = "events"

_Notice = tuple[str, str, int]


class RedisEventStore:
    """An `EventStore` for all machines of a deployment.

    Args:
        link: The connection.
        bus: Notifies readers of a stream that it has grown.
        members: Knows which processes are alive.
    """

    durable = True

    def __init__(self, link: RedisLink, bus: RedisBus, members: RedisMembers) -> None:
        self._link = link
        self._bus = bus
        self._members = members
        self._steps = EventSteps(link)
        self._streams: dict[tuple[str, str], LocalStream] = {}
        self._announcements = Announcements(link, self._steps, self._streams, self._look_soon)
        self._count = 0  # streams so far; makes the names of writers unique
        self._dirty: set[LocalStream] = set()  # read further than the store knows
        self._noting: asyncio.TimerHandle | None = None
        self._keeping: asyncio.TimerHandle | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._stop: Callable[[], None] | None = None
        members.when_dead(self._died)

    def start(self) -> None:
        """Start to listen for streams that other processes append to."""
        self._stop = self._bus.receive(_TOPIC, self._grown)
        self._keep_read()

    def _keep_read(self) -> None:
        """Renew the expiry of streams that are read here, from time to time."""
        loop = asyncio.get_running_loop()
        self._keeping = loop.call_later(KEPT_FOR / 4, self._keep_read)
        for stream in self._streams.values():
            if stream.reads:
                self._steps.keep(stream.session, stream.name)

    def _stream(self, session: str, name: str) -> LocalStream:
        found = self._streams.get((session, name))
        if found is None:
            self._count += 1
            writer = f"{self._members.number}.{self._count}"
            found = self._streams[session, name] = LocalStream(session, name, writer)
        return found

    def _settle(self, stream: LocalStream) -> None:
        """Forget about a stream that this process neither writes to nor follows."""
        if not stream.is_busy and stream not in self._dirty:
            self._streams.pop((stream.session, stream.name), None)

    # Writing

    def begin(self, session: str, stream: str, last_words: Sequence[bytes]) -> None:
        """Note the last words; they are stored with the first event."""
        self._stream(session, stream).last_words = last_words

    def append(self, session: str, stream: str, message: bytes) -> None:
        """Write an event; it goes to the followers once it is stored."""
        found = self._stream(session, stream)
        if found.over or found.ending:
            return
        if len(found.unwritten) >= MAX_UNWRITTEN:
            logger.error("%d events of a stream wait for the store; it ends", MAX_UNWRITTEN)
            found.unwritten.clear()
            found.end()
            return
        found.unwritten.append(message)
        self._write_soon(found)

    def end(self, session: str, stream: str) -> None:
        """Note the end of a stream together with its last events."""
        found = self._stream(session, stream)
        if not found.over and not found.ending:
            found.ending = True
            self._write_soon(found)

    def _write_soon(self, stream: LocalStream) -> None:
        if stream.writing is None:
            stream.writing = asyncio.get_running_loop().create_task(self._write_all(stream))

    async def _write_all(self, stream: LocalStream) -> None:
        try:
            while stream.has_unwritten:
                try:
                    await self._write(stream)
                except StoreUnavailable as error:
                    logger.warning("events wait for the store: %s", error)
                    await self._link.until_usable()
        finally:
            stream.writing = None
            self._settle(stream)

    async def _write(self, stream: LocalStream) -> None:
        """Write all waiting events in one step; hand them to followers and notify other readers."""
        messages, ends, heard = list(stream.unwritten), stream.ending, stream.heard
        last, before, readers = await self._steps.append(
            stream.session,
            stream.name,
            messages,
            process=self._members.number,
            writer=stream.writer,
            first=stream.sequence + 1,
            ends=ends,
            read=stream.read,
            last_words=() if stream.begun else stream.last_words or (),
        )
        stream.begun = True
        stream.sequence += len(messages)
        del stream.unwritten[: len(messages)]
        if last < 0:
            stream.ended_elsewhere()
            return
        if before < (heard or 0):
            stream.lost_events()
        if not stream.hand_over_written(messages, before, last):
            self._look_soon(stream)
        for reader in readers:
            self._tell(reader, stream, last)
        if ends:
            stream.end_written = True
            stream.end()

    async def stored(self, session: str, stream: str) -> None:
        """Wait until everything is written; raises `StoreUnavailable` while the server is away."""
        found = self._streams.get((session, stream))
        writing = None if found is None else found.writing
        while writing is not None and not writing.done():
            await asyncio.wait([writing], timeout=0.05)
            if not writing.done() and not self._link.is_up:
                raise StoreUnavailable("events could not be written yet")

    def announce(
        self, session: str, stream: str, message: bytes, position: str | None = None
    ) -> None:
        """Append an announcement, unless another process has done so."""
        self._announcements.add(session, stream, message, position or "")

    def leave(self, session: str, stream: str) -> None:
        """Leave announcements on a stream to the processes that have its session."""
        self._announcements.drop((session, stream))

    # Reading

    def follow(self, session: str, stream: str, follower: Follower) -> None:
        """Hand events that are appended from now on to a follower."""
        self._stream(session, stream).followers += (follower,)

    def unfollow(self, session: str, stream: str, follower: Follower) -> None:
        """Stop handing events to a follower; without followers, stop reading the stream."""
        found = self._streams.get((session, stream))
        if found is None or follower not in found.followers:
            return
        found.followers = tuple(each for each in found.followers if each is not follower)
        if not found.followers:
            self._leave(found)
            self._dirty.discard(found)
            self._settle(found)

    def stop_reading(self, session: str, stream: str) -> None:
        """Stop reading a stream: other processes no longer notify this one when they append to it."""
        found = self._streams.get((session, stream))
        if found is not None and len(found.followers) < 2:  # another endpoint may still read it
            self._leave(found)

    def _leave(self, stream: LocalStream) -> None:
        if stream.reads:
            stream.reads = False
            self._steps.leave(stream.session, stream.name, self._members.number, stream.read)

    def mark_read(self, session: str, stream: str, number: int) -> None:
        """Note what was read, with a short delay so that many notes become one."""
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
        self._steps.note_read([(each.session, each.name, each.read) for each in dirty])
        for stream in dirty:
            self._settle(stream)

    async def after(self, session: str, stream: str, number: int | None) -> StoredEvents:
        """Return what is kept after a position; from now on this process reads the stream."""
        own = self._members.number
        known = self._streams.get((session, stream))
        read, heard = (0, 0) if known is None else (known.read, known.heard or 0)
        found = await self._steps.after(session, stream, number, read, own)
        if known is not None and found.last < heard:
            known.lost_events()
        readers = found.readers
        if found.producer and not found.ended and not await self._members.is_alive(found.producer):
            await self._steps.end_for(session, stream, found.producer)
            found = await self._steps.after(session, stream, number, read, own)
        for reader in readers:
            if not await self._members.is_alive(reader):  # it did not leave by itself
                self._steps.leave(session, stream, reader, 0)
        self._reads(session, stream, found)
        return StoredEvents(found.events, found.last, found.ended)

    def _reads(self, session: str, stream: str, found: Found) -> None:
        """Note that this process reads a stream, if it follows it."""
        known = self._streams.get((session, stream))
        if known is not None:
            known.reads = True
            known.producer = 0 if found.producer == self._members.number else found.producer
            known.heard = max(known.heard or 0, found.last)
            self._announcements.hurry((session, stream))

    # What other processes append

    def _tell(self, reader: int, stream: LocalStream, last: int) -> None:
        """Tell a process that reads a stream that it has grown."""
        notice = msgspec.json.encode((stream.session, stream.name, last))
        self._run_beside(self._tell_surely(reader, notice))

    async def _tell_surely(self, reader: int, notice: bytes) -> None:
        while True:
            try:
                await self._bus.pass_to(reader, _TOPIC, notice)
                return
            except StoreUnavailable:
                await self._link.until_usable()

    def _grown(self, notice: bytes) -> None:
        session, name, _ = msgspec.json.decode(notice, type=_Notice)
        stream = self._streams.get((session, name))
        if stream is not None and stream.followers:
            self._look_soon(stream)

    def _look_soon(self, stream: LocalStream) -> None:
        stream.look_again = True  # a reply that is on its way may be older than what is to be found
        if stream.looking is None:
            stream.looking = asyncio.get_running_loop().create_task(self._look(stream))

    async def _look(self, stream: LocalStream) -> None:
        """Hand over everything that was appended since, by any process."""
        ended = False
        try:
            while stream.look_again:
                stream.look_again = False
                found = await self._steps.after(stream.session, stream.name, stream.heard or None)
                ended = found.ended
                for number, message in found.events:
                    stream.hand_over(number, message)
                if found.last:  # all that was kept of it is handed over, or was read before
                    stream.heard = max(stream.heard or 0, found.last)
        except EventsLost:
            # The outcome of a producer is lost; a stream without a producer goes on.
            ended = bool(stream.producer) or stream.end_written
            stream.lost_events()
        except StoreUnavailable:
            await self._link.until_usable()
            stream.look_again = bool(stream.followers)
        finally:
            stream.looking = None
        if ended:
            stream.end()
        elif stream.look_again:
            self._look_soon(stream)

    # Processes that die

    def _died(self, number: int) -> None:
        """Append the last words of a dead process to streams that are read here; look at the others."""
        for stream in list(self._streams.values()):
            if stream.followers and stream.producer == number:
                self._run_beside(self._take_over(stream, number))
            elif stream.followers and stream.heard:
                self._look_soon(stream)

    async def _take_over(self, stream: LocalStream, producer: int) -> None:
        await self._steps.end_for(stream.session, stream.name, producer)
        self._look_soon(stream)

    # Life

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def forget(self, session: str) -> None:
        """Drop a session with its streams."""
        for stream in [each for each in self._streams.values() if each.session == session]:
            stream.over = True
            stream.unwritten.clear()
            self._dirty.discard(stream)
            self._streams.pop((session, stream.name), None)
        self._steps.forget(session)

    async def close(self) -> None:
        """Write what waits if the server can be reached, and drop all streams."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        if self._keeping is not None:
            self._keeping.cancel()
        if self._noting is not None:
            self._noting.cancel()
            self._note_read()
        await self._announcements.close()
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


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except StoreUnavailable as error:
        logger.warning("a stream was not brought up to date: %s", error)
