"""Writes announcements to the streams of sessions, to many streams in one step of the store.

Every process that has a session announces to it, and the store accepts an announcement once. Streams that
this process reads come first: their readers get an announcement as soon as it is stored. For other
streams the process waits a moment, since the process that reads them writes the same announcement.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_event_steps import AT_ONCE, ENDED, MAX_EVENTS, EventSteps
from mcpearl.stores.redis_event_stream import LocalStream
from mcpearl.stores.redis_link import RedisLink

logger = logging.getLogger("mcpearl.stores")

UNREAD_DELAY = 1.0
"""Seconds an announcement waits if this process does not read its stream."""
_LAST_WRITES = 5.0  # seconds to write waiting announcements at the end

StreamName = tuple[str, str]
"""The id of a session, and the name of a stream in it."""
_Waiting = dict[StreamName, list[tuple[bytes, str]]]
"""Announcements with their positions, by stream, in order."""


class Announcements:
    """The announcements that this process has to write.

    Args:
        link: The connection.
        steps: The steps of the event store.
        streams: The streams of this process.
        look: Called for a stream that has also grown by events of other processes.
    """

    def __init__(
        self,
        link: RedisLink,
        steps: EventSteps,
        streams: Mapping[StreamName, LocalStream],
        look: Callable[[LocalStream], None],
    ) -> None:
        self._link = link
        self._steps = steps
        self._streams = streams
        self._look = look
        self._read: _Waiting = {}  # for streams that this process reads
        self._unread: _Waiting = {}  # for other streams; these wait for the timer
        self._due: _Waiting = {}  # for other streams, to be written now
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        waiting = len(self._read) + len(self._unread) + len(self._due)
        return waiting + (self._writing is not None)

    def add(self, session: str, name: str, message: bytes, position: str) -> None:
        """Write an announcement soon, unless the store has it or a newer one with the same text."""
        stream = self._streams.get((session, name))
        if stream is not None and stream.reads:
            _add(self._read, (session, name), (message, position))
            self._write_soon()
            return
        _add(self._unread, (session, name), (message, position))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(UNREAD_DELAY, self._unread_is_due)

    def hurry(self, name: StreamName) -> None:
        """Write at once what waits for a stream that this process reads from now on."""
        for waiting in (self._due, self._unread):
            for announcement in waiting.pop(name, ()):
                _add(self._read, name, announcement)
        if name in self._read:
            self._write_soon()

    def drop(self, name: StreamName) -> None:
        """Drop what waits for a stream of a session that this process no longer has."""
        for waiting in (self._read, self._due, self._unread):
            waiting.pop(name, None)

    def _unread_is_due(self) -> None:
        self._timer = None
        unread, self._unread = self._unread, {}
        for name, announcements in unread.items():
            for announcement in announcements:
                _add(self._due, name, announcement)
        self._write_soon()

    def _write_soon(self) -> None:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while waiting := self._read or self._due:
                await self._write_some(waiting)
        finally:
            self._writing = None

    async def _write_some(self, waiting: _Waiting) -> None:
        """Write the oldest waiting announcement of up to `AT_ONCE` streams."""
        together: dict[tuple[bytes, str], list[StreamName]] = {}
        for name in list(islice(waiting, AT_ONCE)):
            announcements = waiting[name]
            together.setdefault(announcements.pop(0), []).append(name)
            if not announcements:
                del waiting[name]
        writes = [self._write(*each, names) for each, names in together.items()]
        if len(writes) == 1:
            await writes[0]
        else:
            await asyncio.gather(*writes)

    async def _write(self, message: bytes, position: str, names: list[StreamName]) -> None:
        """Write one announcement to some streams. Whatever goes wrong, those that wait go on."""
        try:
            await self._write_to(names, message, position)
        except Exception:
            logger.exception("an announcement was dropped; the next ones are written")
            for name in names:
                stream = self._streams.get(name)
                if stream is not None and stream.followers:
                    self._look(stream)  # the store may have it

    async def _write_to(self, names: list[StreamName], message: bytes, position: str) -> None:
        while True:
            before = [self._streams.get(name) for name in names]
            heard = [(stream.heard or 0) if stream is not None else 0 for stream in before]
            try:
                written = await self._steps.announce(names, message, position)
                break
            except StoreUnavailable:
                await self._link.until_usable()
        for name, stream, known, (last, appended) in zip(
            names, before, heard, written, strict=True
        ):
            if last == ENDED:
                continue  # this process has not heard of it yet
            if last < 0:
                logger.warning("the store has something in a stream of events that is not ours")
            elif stream is not None and self._streams.get(name) is stream:
                if last - appended < known:
                    stream.lost_events()
                self._hand_over(stream, last, message if appended else None)

    def _hand_over(self, stream: LocalStream, last: int, message: bytes | None) -> None:
        """Hand an announcement to the followers of a stream, whichever process wrote it."""
        heard = stream.heard or 0
        if not stream.followers or last <= heard:
            return  # every process that reads the stream announces the same
        if message is not None and stream.heard == last - 1 and stream.looking is None:
            stream.hand_over(last, message)
        else:
            self._look(stream)

    async def close(self) -> None:
        """Write what waits if the server can be reached. Other processes write the rest."""
        if self._timer is not None:
            self._timer.cancel()
        self._unread_is_due()
        writing = self._writing
        if writing is None:
            return
        if self._link.is_up:
            await asyncio.wait([writing], timeout=_LAST_WRITES)
        writing.cancel()
        await asyncio.wait([writing])


def _add(waiting: _Waiting, name: StreamName, announcement: tuple[bytes, str]) -> None:
    """Queue an announcement. A stream keeps only `MAX_EVENTS` events, so no more than that wait."""
    announcements = waiting.setdefault(name, [])
    announcements.append(announcement)
    if len(announcements) > MAX_EVENTS:
        del announcements[0]
