"""Legacy sessions over HTTP: who they are, the streams they have, and how they end.

A session is the `Transport` of one client that has no connection of its own: what belongs to no
request goes to a standing stream, whichever response reads it at the moment. Sessions nobody uses
expire; their number is bounded.
"""

import asyncio
import secrets
from collections import OrderedDict
from time import monotonic
from typing import Any, Generic, TypeVar

from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_server.event_stream import EventStream
from mcpearl.transports.http_server.gate import busy

STANDING = "s"
MAX_BESIDE = 8  # streams of one session that are open beside the first
MAX_STREAMS = 32  # streams of one session nobody reads that can still be resumed


class HttpSession:
    """One legacy session."""

    __slots__ = (
        "_limit",
        "_next",
        "_open",
        "_standing",
        "_streams",
        "closed",
        "id",
        "principal",
        "receiver",
        "used",
    )

    keeps_alive = True  # it expires by itself, and streams are kept alive by comments

    def __init__(self, id: str, limits: Limits, principal: Any, now: float) -> None:
        self.id = id
        self.principal = principal
        self.used = now
        self.closed = False
        self._limit = limits.max_outgoing
        self._next = 1
        self._open = 0  # requests that are being answered
        self.receiver: Any = None  # what takes the messages of this session, once attached
        self._standing: EventStream | None = None
        self._streams: OrderedDict[str, EventStream] | None = None  # of POSTs, by name

    def attach(self, receiver: Any) -> None:
        """Take whoever receives the messages of this session."""
        self.receiver = receiver

    def recognize(self, principal: Any) -> None:
        """Go on with the same somebody who brought a new token, and with what that one allows."""
        self.principal = principal
        self.receiver.recognize(principal)

    def enter(self) -> None:
        """Note that a request is being answered."""
        self._open += 1

    def leave(self) -> None:
        """Note that it has been."""
        self._open -= 1
        self.used = monotonic()

    def new_stream(self) -> EventStream:
        """Make the stream of a POST, which can be resumed."""
        stream = EventStream(f"{self._next}", self._limit)
        self._next += 1
        self._keep(stream)
        return stream

    def _keep(self, stream: EventStream) -> None:
        assert stream.id is not None
        if self._streams is None:
            self._streams = OrderedDict()
        self._streams[stream.id] = stream
        unread = [kept for kept in self._streams.values() if not kept.read and kept is not stream]
        size = sum(kept.size for kept in unread)
        for place, oldest in enumerate(unread):
            if len(unread) - place < MAX_STREAMS and size <= self._limit:
                break
            assert oldest.id is not None
            del self._streams[oldest.id]
            size -= oldest.size
            oldest.end()

    def standing(self) -> EventStream:
        """The stream for what belongs to no request."""
        if self._standing is None:
            self._standing = EventStream(STANDING, self._limit)
        return self._standing

    def another_standing(self) -> EventStream:
        """The stream of one more GET. Several may be open; each message goes on one of them."""
        first = self.standing()
        if not first.read:
            return first
        if sum(stream.read for stream in self._beside()) >= MAX_BESIDE:
            raise busy("Too many streams of this session are open", 1)
        stream = EventStream(f"{STANDING}{self._next}", self._limit)
        self._next += 1
        self._keep(stream)
        return stream

    def _beside(self) -> list[EventStream]:
        """The streams of further GETs."""
        kept: dict[str, EventStream] = self._streams or {}
        return [stream for name, stream in kept.items() if name.startswith(STANDING)]

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """Find the stream and position an event id names; None when it is not one of this session."""
        name, _, number = event_id.rpartition(".")
        kept = self._streams
        stream = self._standing if name == STANDING else kept.get(name) if kept else None
        if stream is None or not (number.isascii() and number.isdigit()) or len(number) > 18:
            return None
        return (stream, int(number)) if stream.can_resume(int(number)) else None

    @property
    def busy(self) -> bool:
        """Whether one of its requests is being answered."""
        return bool(self._open) or any(stream.read for stream in self._all_streams())

    def _all_streams(self) -> list[EventStream]:
        posts = self._streams.values() if self._streams else ()
        return [*posts] if self._standing is None else [self._standing, *posts]

    def end_standing(self) -> None:
        """End the stream for what belongs to no request: nothing more will be said."""
        if self._standing is not None:
            self._standing.end()
        for stream in self._beside():
            stream.end()

    def send(self, message: bytes) -> None:
        """Say something that belongs to no request."""
        if self.closed:
            return
        stream = self.standing()
        if not stream.read and self._streams:
            stream = next((other for other in self._beside() if other.read), stream)
        stream.put(message)

    def flush(self) -> None:
        """Nothing waits here."""

    def pause(self) -> None:
        """Every POST is admitted or refused by itself; there is nothing to hold back."""

    def resume(self) -> None:
        """Nothing was held back."""

    async def close(self) -> None:
        """End every stream."""
        self.end()

    def end(self) -> None:
        """End the session: its streams, and what its receiver holds."""
        if self.closed:
            return
        self.closed = True
        for stream in self._all_streams():
            stream.end()
        if self.receiver is not None:
            self.receiver.lost(None)


S = TypeVar("S", bound=HttpSession)


class SessionsFull(Exception):
    """As many sessions as allowed exist, and all are in use."""


class Sessions(Generic[S]):
    """All sessions of one endpoint, of one kind."""

    def __init__(
        self,
        limits: Limits,
        max_sessions: int,
        idle_timeout: float,
        kind: type[S],
        prefix: str = "",
    ) -> None:
        self._prefix = prefix  # of every id
        self._kind = kind
        self._limits = limits
        self._max = max_sessions
        self._idle = idle_timeout
        self._sessions: dict[str, S] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, principal: Any) -> S:
        """Begin a session, or raise `SessionsFull`."""
        loop = asyncio.get_running_loop()
        if len(self._sessions) >= self._max:
            self._expire(monotonic())
            if len(self._sessions) >= self._max:
                raise SessionsFull
        id = self._prefix + secrets.token_urlsafe(24)
        session = self._kind(id, self._limits, principal, monotonic())
        self._sessions[session.id] = session
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._idle / 4, self._sweep)
        return session

    def find(self, id: str, principal: Any) -> S | None:
        """Find a session; another principal's does not exist."""
        session = self._sessions.get(id)
        if session is None or session.closed:
            return None
        if session.principal is not principal:
            if session.principal != principal:
                return None
            session.recognize(principal)
        session.used = monotonic()
        return session

    def remove(self, session: S) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)
        session.end()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeper = None
        self._expire(monotonic())
        if self._sessions:
            self._sweeper = loop.call_later(self._idle / 4, self._sweep)

    def _expire(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if session.closed or (now - session.used > self._idle and not session.busy):
                self.remove(session)

    def all(self) -> list[S]:
        """Every session there is."""
        return list(self._sessions.values())

    def close(self) -> None:
        """End all sessions."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for session in self.all():
            self.remove(session)
