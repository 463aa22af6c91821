"""Reads Redis streams as they grow, and continues after the connection was cut.

After a cut, reading continues where it stopped. If entries that were not read yet are gone by then
(trimmed, or lost with the server), `missed` is called.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from mcpearl.runtime.backoff import Retries
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_link import RECONNECTS, RedisLink

logger = logging.getLogger("mcpearl.stores")

_BLOCK = 5.0  # seconds one read blocks
_AT_ONCE = 500  # most entries of one read
KEPT = 10_000
"""Approximate number of entries kept in a stream: one that has fewer was not trimmed."""
BEGINNING = b"0-0"
"""The position before the first entry of a stream."""

Entry = Mapping[bytes, bytes]
HearEntry = Callable[[Entry, bytes], None]


class _Followed:
    """One stream, and how far it was read."""

    __slots__ = ("after", "again_until", "hear", "key", "missed", "position")

    def __init__(
        self, key: str, hear: HearEntry, missed: Callable[[], None], after: bytes | None = None
    ) -> None:
        self.key = key
        self.hear = hear
        self.missed = missed
        self.after = after
        self.position: bytes | None = None  # None before the server was reached
        self.again_until: bytes | None = None  # entries up to this one may be heard a second time


class Tail:
    """Calls functions with the entries that are added to streams.

    Args:
        link: The connection.
        key: The key of the stream.
        hear: Called with each entry and its id.
        missed: Called when entries may have been lost, before the next one is handed over. The position
            is still None if reading only begins now, since the server was away at the start.
        after: The id of the entry that was read last; None to read what is added from now on.
    """

    def __init__(
        self,
        link: RedisLink,
        key: str,
        hear: HearEntry,
        missed: Callable[[], None],
        after: bytes | None = None,
    ) -> None:
        self._link = link
        self._streams = [_Followed(key, hear, missed, after)]
        self._reading: asyncio.Task[None] | None = None

    def also(self, key: str, hear: HearEntry, missed: Callable[[], None], after: bytes) -> None:
        """Read another stream too, all that follows a position. Only before `start`.

        Args:
            key: The key of the stream.
            hear: Called with each entry and its id.
            missed: Called when entries may have been lost.
            after: The id of the entry that was read last, or `BEGINNING`.
        """
        self._streams.append(_Followed(key, hear, missed, after))

    def position(self, key: str) -> bytes | None:
        """Return how far a stream was read: the id of the last entry. None if that is not known yet."""
        (position,) = (stream.position for stream in self._streams if stream.key == key)
        return position

    async def start(self) -> None:
        """Start reading. Entries that are added after this returns are handed over."""
        for stream in self._streams:
            stream.position = stream.after
            if stream.position is not None:
                continue
            try:
                stream.position = await self._newest(stream.key)
            except StoreUnavailable:
                continue  # reading starts once the server can be reached
        self._reading = asyncio.get_running_loop().create_task(self._read_forever())

    async def close(self) -> None:
        """Stop reading."""
        reading, self._reading = self._reading, None
        while reading is not None and not reading.done():
            reading.cancel()  # redis-py loses a cancellation that comes together with a reply
            await asyncio.wait([reading], timeout=0.1)

    async def _newest(self, key: str) -> bytes:
        """Return the position of the newest entry."""
        reply = await self._link.send("XREVRANGE", key, "+", "-", "COUNT", 1)
        return bytes(reply[0][0]) if reply else BEGINNING

    async def _read_forever(self) -> None:
        retries = Retries(RECONNECTS)
        while True:
            try:
                await self._read_until_cut(retries)
            except Exception as error:  # disconnecting may fail, too
                logger.debug("reading from %s was cut: %s", self._link.address.shown, error)
            await asyncio.sleep(retries.next_delay())

    async def _read_until_cut(self, retries: Retries) -> None:
        client = self._link.reader(_BLOCK)
        try:
            await self._catch_up()
            while True:
                await self._read(client)
                retries.start_over()
        finally:
            await self._link.address.disconnect(client)

    async def _catch_up(self) -> None:
        """Find out for each stream whether entries that were not read yet are gone."""
        for stream in self._streams:
            if stream.position is None:
                newest = await self._newest(stream.key)
                stream.missed()
                stream.position = newest
            elif not await self._has(stream):
                newest = await self._newest(stream.key)
                stream.missed()
                if number_of(newest) < number_of(stream.position):
                    # A server took over that has not all of the stream, and whose clock may lag: what
                    # it adds may have lower ids. To hear some entries twice does no harm.
                    stream.position, stream.again_until = BEGINNING, newest

    async def _has(self, stream: _Followed) -> bool:
        """Whether the entry that was read last is still there, and therefore all that follow it."""
        position = stream.position or BEGINNING
        if position == BEGINNING:
            return int(await self._link.send("XLEN", stream.key)) < KEPT
        return bool(await self._link.send("XRANGE", stream.key, position, position))

    async def _read(self, client: Any) -> None:
        positions = {stream.key: stream.position or BEGINNING for stream in self._streams}
        command = ("XREAD", "COUNT", _AT_ONCE, "BLOCK", int(_BLOCK * 1000), "STREAMS")
        reply = await client.execute_command(*command, *positions, *positions.values())
        if not reply:
            return
        found = {stream.key.encode(): stream for stream in self._streams}
        for key, entries in reply:
            stream = found[bytes(key)]
            for position, fields in entries:
                stream.position = bytes(position)
                self._hand_over(stream, fields, stream.position)
                if position == stream.again_until:  # what was lost comes after it
                    stream.again_until = None
                    stream.missed()
            if len(entries) == _AT_ONCE and not await self._has(stream):
                stream.missed()  # it grows faster than it is read

    def _hand_over(self, stream: _Followed, fields: Any, id: bytes) -> None:
        try:
            stream.hear(fields if isinstance(fields, dict) else dict(fields or ()), id)
        except Exception:
            logger.exception("an entry of %s could not be taken", stream.key)


def number_of(id: bytes) -> tuple[int, int]:
    """Return the id of an entry as numbers, in the order of the entries."""
    time, _, number = id.partition(b"-")
    return int(time), int(number or 0)
