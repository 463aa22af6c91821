"""Legacy sessions over HTTP: one client each, and the streams it reads.

A session is the transport of a client that has no connection of its own. Messages that belong to no
request go to a standing stream, which any GET may read. `session_table` knows which sessions there are.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from mcpearl.protocol import codec
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call
from mcpearl.runtime import clock
from mcpearl.runtime.budget import Account, Holding
from mcpearl.stores.events import EventsLost, EventStore
from mcpearl.transports.http_server.event_stream import KeptStream, StreamReader
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.types.base import RequestId
from mcpearl.types.jsonrpc import INTERNAL_ERROR

STANDING = "s"  # the name of the first standing stream; those of further ones begin with it
_POST = "p"
_CONFIRM = 5.0  # seconds after which a client that is still there has read what it was sent
# Standing streams of one session beside the first: so many that are read, and so many that are not.
MAX_BESIDE = 8


class Stage(IntEnum):
    """How far a session has come."""

    OPENING = 0  # until `notifications/initialized`
    UNUSED = 1  # until the first request after that
    USED = 2
    CLOSED = 3


class StreamTerms(NamedTuple):
    """What all sessions of an endpoint share."""

    limit: int
    """Bytes that may wait at one reader."""
    events: EventStore | None
    """Keeps the events of streams that can be resumed; None where no stream can."""


class TransportSession:
    """What sessions of every HTTP transport have in common: a client, a receiver, and a life."""

    __slots__ = (
        "_charged",
        "_terms",
        "account",
        "caller",
        "id",
        "open",
        "principal",
        "receiver",
        "stage",
        "used",
    )

    medium = "http"
    peer_address = None
    written = 0  # the connections count what is sent on them
    keeps_alive = True  # it expires by itself, and streams are kept alive by comments

    def __init__(self, terms: StreamTerms, principal: Any, now: float) -> None:
        self.id = ""  # given when the session enters the table
        self.caller = ""  # names the caller that began it, for a store that counts
        self.principal = principal
        self.receiver: Any = None  # the server's side of this client
        self.used = now  # when a request of it last began or ended
        self.open = 0  # requests that are being answered
        self.stage = Stage.OPENING
        self._terms = terms

    def charge(self, account: Account, charged: Holding) -> None:
        """Take over the account of the caller, and what the session is charged there."""
        self.account = account
        self._charged = charged

    @property
    def session_id(self) -> str | None:
        """Its id; None before it enters the table."""
        return self.id or None

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self.stage is Stage.CLOSED

    def recognize(self, principal: Any) -> None:
        """Continue the session under a refreshed token; its scopes apply from now on."""
        self.principal = principal
        self.receiver.recognize(principal)

    # As a transport

    def tally(self, count: Callable[[int], None]) -> None:
        """Count nothing: the connections count what is read from them."""

    def send(self, message: bytes) -> None:
        """Send a message that belongs to no request."""
        raise NotImplementedError

    def flush(self) -> None:
        """Do nothing: messages are not held back."""

    def pause(self) -> None:
        """Do nothing: every POST is admitted or refused by itself."""

    def resume(self) -> None:
        """Do nothing: nothing was held back."""

    async def close(self) -> None:
        """End the session."""
        self.end()

    def end(self) -> None:
        """End the streams of the session, and release what its receiver holds."""
        if self.stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        self._charged.release()
        self._end_streams()
        if self.receiver is not None:
            self.receiver.lost(None)

    def _end_streams(self) -> None:
        raise NotImplementedError


class HttpSession(TransportSession):
    """A session of Streamable HTTP."""

    __slots__ = ("_streams",)

    def __init__(self, terms: StreamTerms, principal: Any, now: float) -> None:
        super().__init__(terms, principal, now)
        self._streams: dict[str, KeptStream] | None = None  # in this process, by name

    # Streams

    def new_stream(self, calls: Sequence[Call]) -> KeptStream:
        """Return the stream of a POST, which can be resumed.

        Args:
            calls: The calls it will answer; if this process dies, another one answers with an error.
        """
        stream = self._open_stream(_new_name(_POST))
        events = self._terms.events
        if events is not None and events.durable:
            events.begin(self.id, stream.id, [_died(call.id) for call in calls])
        return stream

    def _open_stream(self, name: str) -> KeptStream:
        limit, events = self._terms
        assert events is not None
        if self._streams is None:
            self._streams = {}
        for ended in [each for each in self._streams.values() if each.ended and not each.read]:
            self._drop(ended)
        confirm = _CONFIRM if events.durable and name.startswith(STANDING) else 0.0
        stream = KeptStream(name, limit, self.id, events, self.account, confirm)
        self._streams[name] = stream
        return stream

    def _drop(self, stream: KeptStream) -> None:
        """Forget a stream; as long as the store has its events, it can still be resumed."""
        assert self._streams is not None
        del self._streams[stream.id]
        stream.close()

    def standing(self) -> KeptStream:
        """Return the stream for messages that belong to no request."""
        found = self._streams.get(STANDING) if self._streams else None
        return found or self._open_stream(STANDING)

    def _newest_read(self) -> KeptStream | None:
        """Return the standing stream whose reader came last, if any is read.

        An older reader may have vanished without the server having noticed.
        """
        streams = reversed(self._streams.values()) if self._streams else ()
        return next((each for each in streams if each.read and each.id.startswith(STANDING)), None)

    def _come_to(self, stream: KeptStream) -> None:
        """Note that a reader comes to a stream: it is the newest."""
        assert self._streams is not None
        self._streams[stream.id] = self._streams.pop(stream.id)

    def _beside(self) -> list[KeptStream]:
        """Return the streams of further GETs, the oldest first."""
        streams: dict[str, KeptStream] = self._streams or {}
        return [
            stream
            for name, stream in streams.items()
            if name.startswith(STANDING) and name != STANDING
        ]

    async def listen(self, primes: bool) -> StreamReader:
        """Return the reader of one more GET. Several may be open; each message goes to the newest.

        Args:
            primes: Whether to begin with an empty event, if the client's version has that.
        """
        stream = self.standing()
        if stream.read:
            stream = self._another_standing()
        self._come_to(stream)
        if primes:
            stream.prime()
        return await stream.resume(None)

    def _another_standing(self) -> KeptStream:
        beside = self._beside()
        unread = [stream for stream in beside if not stream.read]
        if len(beside) - len(unread) >= MAX_BESIDE:
            raise busy("Too many streams of this session are open", 1)
        if len(unread) >= MAX_BESIDE:
            unread[0].end()
            self._drop(unread[0])
        return self._open_stream(_new_name(STANDING))

    async def listen_after(self, event_id: str) -> StreamReader:
        """Return a reader that continues a broken stream after the event a client names."""
        name, _, digits = event_id.rpartition(".")
        if not name or not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise _not_kept()
        number = int(digits)
        try:
            stream = self._streams.get(name) if self._streams else None
            if stream is None:
                stream = await self._reopen(name, number)
            self._come_to(stream)
            return await stream.resume(number)
        except EventsLost:
            raise _not_kept() from None

    async def _reopen(self, name: str, number: int) -> KeptStream:
        """Open a stream that only the store knows: it was dropped here, or began at another process."""
        assert self._terms.events is not None
        await self._terms.events.after(self.id, name, number)  # raises where there is none
        found = self._streams.get(name) if self._streams else None
        return found or self._open_stream(name)

    def end_standing(self) -> None:
        """End the streams for messages that belong to no request, in this process."""
        for stream in list((self._streams or {}).values()):
            if stream.id.startswith(STANDING):
                self._drop(stream)

    def _end_streams(self) -> None:
        for stream in list((self._streams or {}).values()):
            self._drop(stream)
        if self._terms.events is not None:
            self._terms.events.leave(self.id, STANDING)

    # As a transport

    def send(self, message: bytes) -> None:
        """Send a message that belongs to no request, if possible on a standing stream that is read."""
        if self.stage is Stage.CLOSED:
            return
        (self._newest_read() or self.standing()).put(message)

    def announce(self, message: bytes, position: str | None = None) -> None:
        """Send an announcement once, although every process that has the session announces it.

        Args:
            message: The announcement.
            position: Its position on the bus, if the bus stores messages.
        """
        events = self._terms.events
        if self.stage is Stage.CLOSED:
            return
        if events is None or not events.durable:
            self.send(message)
            return
        newest = self._newest_read()
        if newest is None or newest.id == STANDING:
            events.announce(self.id, STANDING, message, position)
        else:
            newest.put(message)


def _died(id: RequestId) -> bytes:
    """Return the answer to a request whose process died."""
    error = McpError(
        INTERNAL_ERROR,
        "The server process that ran this call ended before it did; the call may have run, wholly or "
        "in part",
        {"mayHaveRun": True},
    )
    return codec.encode_error(id, error)


def _new_name(kind: str) -> str:
    """Return a name no other stream of the session has, whichever process opened it."""
    return kind + clock.token(6)


def _not_kept() -> Refused:
    return Refused(400, "Last-Event-ID names no event that is still kept")
