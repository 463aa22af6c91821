"""What waits to be sent to one page: events of the live view may be dropped, answers may not."""

import asyncio
from collections import deque
from typing import Any

import msgspec

from mcpearl.net.sse import format_event

MAX_BYTES = 32 * 1024 * 1024  # bytes that wait; above that the page is given up
MAX_LIVE = 4 * 1024 * 1024  # bytes that wait before further events of the live view are dropped
_encode = msgspec.json.Encoder(enc_hook=str).encode


def encode_event(kind: str, **members: Any) -> bytes:
    """Return an event as it is sent, for a page or for another worker that has one."""
    return format_event(_encode({"type": kind, **members}))


class PageEvents:
    """The events for one page, in order. It is written to by anything, and read by one response."""

    __slots__ = ("_events", "_news", "_size", "closed", "dropped")

    def __init__(self) -> None:
        self.closed = False
        self.dropped = 0  # events of the live view that the page was too slow for
        self._events: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()

    def put(self, kind: str, **members: Any) -> None:
        """Add an event that must arrive; a page that does not read is given up."""
        self.add(encode_event(kind, **members))

    def put_live(self, kind: str, **members: Any) -> None:
        """Add an event that the next one of its kind makes up for, unless too much waits."""
        if self._size > MAX_LIVE:
            self.dropped += 1
        else:
            self.put(kind, **members)

    def add(self, event: bytes) -> None:
        """Add an encoded event that must arrive."""
        if self.closed:
            return
        if self._size > MAX_BYTES:
            self.close()
            return
        self._events.append(event)
        self._size += len(event)
        self._news.set()

    def add_live(self, event: bytes) -> None:
        """Add an encoded event of the live view, unless too much waits."""
        if self._size > MAX_LIVE:
            self.dropped += 1
        else:
            self.add(event)

    def close(self) -> None:
        """Take no more events; what waits is not sent."""
        self.closed = True
        self._events.clear()
        self._size = 0
        self._news.set()

    async def take(self) -> bytes:
        """Wait for events and return all of them; empty when the outbox was closed."""
        while not self._events and not self.closed:
            self._news.clear()
            await self._news.wait()
        taken = b"".join(self._events)
        self._events.clear()
        self._size = 0
        return taken
