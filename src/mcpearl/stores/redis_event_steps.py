"""The steps of the event store on Redis as methods that fill in keys and bounds and decode replies."""

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from mcpearl.stores.events import EventsLost, StoredEvent
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
from mcpearl.stores.redis_sessions import digest_of

MAX_EVENTS = 1000  # kept of one stream
MAX_BYTES = 8 * 1024 * 1024  # kept of one stream
MAX_STREAMS = 64  # kept of one session; streams that have not ended are kept in any case
KEPT_FOR = 3600  # seconds a stream is kept after its last event
LINGER = 60  # seconds a stream is kept after it ended and was read to its end
MAX_ANNOUNCED = 10_000  # announcements of one stream whose positions are remembered
ENDED = -2
AT_ONCE = 128
"""Most streams that one step writes to: other clients of the store wait meanwhile."""


class Found(NamedTuple):
    """What the store has of a stream after a position."""

    last: int
    ended: bool
    producer: int
    """The process that produces the stream; 0 if there is none."""
    events: list[StoredEvent]
    readers: list[int]
    """The other processes that read it."""


class EventSteps:
    """The steps; the server runs each of them atomically.

    Args:
        link: The connection.
    """

    def __init__(self, link: RedisLink) -> None:
        self._link = link

    def keys(self, session: str, stream: str) -> list[str]:
        """Return the keys of a stream: its state, its events, and the names of the session's streams."""
        owner, key = digest_of(session), self._link.key_of
        return [key(owner, "m", stream), key(owner, "e", stream), key(owner, "streams")]

    async def append(
        self,
        session: str,
        stream: str,
        messages: Sequence[bytes],
        *,
        process: int,
        writer: str,
        first: int,
        ends: bool,
        read: int,
        last_words: Sequence[bytes],
    ) -> tuple[int, int, list[int]]:
        """Append events; those that are stored already are skipped.

        Args:
            session: The id of the session.
            stream: The name of the stream.
            messages: The events.
            process: The number of this process.
            writer: Identifies the sequence of events that `first` counts in.
            first: The sequence number of the first event.
            ends: Whether the stream ends with them.
            read: The newest event that this process has read.
            last_words: With the first call, the events that end the stream if this process dies; later
                nothing.

        Returns:
            The newest number, the newest before, and the other processes that read the stream. The
            newest number is -1 if another process has ended the stream.
        """
        words = [each.decode() for each in last_words]
        last, before, readers = await self._link.run(
            APPEND,
            self.keys(session, stream),
            (
                *(writer, first, int(ends), read, process),
                *(MAX_EVENTS, MAX_BYTES, MAX_STREAMS, KEPT_FOR, LINGER),
                *(stream, msgspec.msgpack.encode(words) if words else b""),
                *messages,
            ),
        )
        return int(last), int(before), [int(reader) for reader in readers]

    async def announce(
        self, streams: Sequence[tuple[str, str]], message: bytes, position: str
    ) -> list[tuple[int, int]]:
        """Append an announcement to those streams that do not have it.

        Args:
            streams: The session and the name of each stream.
            message: The announcement.
            position: Its position on the bus; empty if it has none.

        Returns:
            For each stream the newest number, and 1 if the announcement was appended, else 0. The number
            is -1 where the store has something other than a stream, and `ENDED` where the session was
            ended.
        """
        given = (MAX_EVENTS, MAX_BYTES, KEPT_FOR, MAX_ANNOUNCED, message, position)
        keys = [self._announcing_keys(*stream) for stream in streams]
        if self._link.address.kind == "cluster":  # where sessions are on different nodes
            runs = [
                self._link.run(ANNOUNCE, own, (*given, name))
                for own, (_, name) in zip(keys, streams, strict=True)
            ]
            replies = [reply for (reply,) in await asyncio.gather(*runs)]
        else:
            names = [name for _, name in streams]
            replies = await self._link.run(ANNOUNCE, list(chain(*keys)), (*given, *names))
        return [(int(last), int(appended)) for last, appended in replies]

    def _announcing_keys(self, session: str, stream: str) -> tuple[str, str, str, str]:
        """Return the keys of a stream, and the key of the announcements made on it."""
        owned = self._link.key_of(digest_of(session), "")
        return f"{owned}m:{stream}", f"{owned}e:{stream}", f"{owned}streams", f"{owned}a:{stream}"

    async def after(
        self, session: str, stream: str, position: int | None, read: int = 0, reader: int = 0
    ) -> Found:
        """Return the events after a position, or those that were not read.

        Args:
            session: The id of the session.
            stream: The name of the stream.
            position: The number of an event; None for the last that was read.
            read: The newest event that this process has read.
            reader: The process that reads the stream from now on; 0 for none.

        Raises:
            EventsLost: There is no such stream or event, or it is no longer kept.
        """
        given = ("" if position is None else position, read, reader, KEPT_FOR, stream)
        reply = await self._link.run(AFTER, self.keys(session, stream), given)
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
        return Found(int(last), bool(ended), int(producer or 0), events, others)

    async def end_for(self, session: str, stream: str, producer: int) -> None:
        """Append the last words of a process that died, and end its stream."""
        await self._link.run(END_WITH, self.keys(session, stream), (producer, KEPT_FOR))

    # Steps whose outcome is not awaited

    def note_read(self, read: Sequence[tuple[str, str, int]]) -> None:
        """Note how far some streams were read: the session, the name and the number of each."""
        at_once = 1 if self._link.address.kind == "cluster" else AT_ONCE
        for start in range(0, len(read), at_once):
            some = read[start : start + at_once]
            keys = [key for session, stream, _ in some for key in self.keys(session, stream)[:2]]
            numbers = [number for _, _, number in some]
            self._post(
                self._link.run(READ, keys, (LINGER, *numbers)), "what was read was not noted"
            )

    def leave(self, session: str, stream: str, reader: int, read: int) -> None:
        """Note that a process no longer reads a stream."""
        step = self._link.run(LEAVE, self.keys(session, stream), (reader, read))
        self._post(step, "a process is still noted as a reader of a stream")

    def keep(self, session: str, stream: str) -> None:
        """Keep a stream that is read from expiring, even if no events are appended."""
        for key in self.keys(session, stream):
            step = self._link.send("PEXPIRE", key, KEPT_FOR * 1000)
            self._post(step, "a stream that is read may expire")

    def forget(self, session: str) -> None:
        """Delete the streams of a session."""
        owner, key = digest_of(session), self._link.key_of
        given = tuple(key(owner, kind, "") for kind in ("m", "e", "a"))
        step = self._link.run(FORGET, [key(owner, "streams")], given)
        self._post(step, "streams could not be deleted")

    def _post(self, step: "asyncio.Future[Any]", otherwise: str) -> None:
        self._link.post(step, otherwise)
