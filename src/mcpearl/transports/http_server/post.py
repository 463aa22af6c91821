"""One POST: its body comes in, its message is served, its answer goes out.

The answer is plain JSON when it comes before anything else was said, and a stream of events from the
first notification on. A call runs in the task of its request, so nothing stands between the two; a
writer of its own is there only once there is a stream.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from mcpearl.net.http_server.compression import MIN_SIZE, encoded
from mcpearl.net.http_server.request import Headers, Receive, Request
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.events import Call
from mcpearl.runtime.late import LateWatch
from mcpearl.transports.http_server.event_stream import EventStream, StreamReader
from mcpearl.transports.http_server.gate import Refused
from mcpearl.transports.http_server.responses import Pace, disconnected, respond_stream

logger = logging.getLogger("mcpearl.http")
_CLOSE = ((b"connection", b"close"),)


class Running(Protocol):
    """Runs the calls of a request."""

    async def run(self, calls: list[Call]) -> None:
        """Run calls to their end."""
        ...

    def give_up(self, calls: Sequence[Call]) -> None:
        """End calls whose client no longer waits for them."""
        ...


class Conversation(Running, Protocol):
    """The server's side of one client, as far as HTTP needs it."""

    def receive(self, message: bytes | Envelope, outlet: "PostOutlet") -> list[Call]:
        """Take one message, which may be decoded already; return the calls to run."""
        ...

    def speak(self, version: str) -> None:
        """Take the session as initialized in this version."""
        ...

    def lost(self, reason: Exception | None) -> None:
        """Release everything: the client is gone."""
        ...


class Terms(NamedTuple):
    """What an endpoint grants every request."""

    max_body: int
    body_timeout: float  # seconds for a body to arrive
    max_outgoing: int  # bytes that may wait in a stream
    keep_alive: float  # seconds of silence before a sign of life
    pace: Pace
    lingering: LateWatch  # the POSTs under way


class PostOutlet:
    """A request on its way. It is the `Outlet` of its answer."""

    # Most requests are answered at once; what others need has its value here.
    answer: bytes | None = None
    refused = False
    headers: Headers = ()
    """What the response has beside the usual."""
    before_answer: Callable[[], Awaitable[None]] | None = None
    """Awaited before the answer leaves: what it acknowledges is stored first."""
    stream: EventStream | None = None
    _late = False
    _expired = False  # the body took too long
    _task: "asyncio.Task[Any] | None" = None  # that waits for the body
    _timer: asyncio.TimerHandle | None = None
    _gone: "asyncio.Task[None] | None" = None  # done when the client has left
    _conversation: Running | None = None  # in which calls are run
    _calls: Sequence[Call] = ()
    _new_stream: Callable[[], EventStream] | None = None  # of a session: it can be resumed
    _primes = False  # a stream begins with an empty event, as its client knows
    _writer: "asyncio.Task[None] | None" = None
    _dropped = False  # the client did not read
    _lingers = False

    def __init__(self, terms: Terms, request: Request) -> None:
        self._terms = terms
        self._request = request

    def __enter__(self) -> "PostOutlet":
        if self._request.in_place:
            self._request.exchange = self  # whoever serves it will see whether it lingers
        else:
            self.linger()
        return self

    def __exit__(self, *_: object) -> None:
        self._request.exchange = None
        if self._lingers:
            self._terms.lingering.discard(self)
        self.close()

    def linger(self) -> None:
        """Be looked after, when it takes long."""
        self._lingers = True
        self._terms.lingering.add(self)

    def belong(self, new_stream: Callable[[], EventStream], primes: bool) -> None:
        """Belong to a session: a call goes on when its client leaves, and so may its stream."""
        self._new_stream = new_stream
        self._primes = primes

    # The request

    async def read_body(self) -> bytes:
        """Give the whole body, within its bounds."""
        limit = self._terms.max_body
        body = self._request.body
        if body is not None:
            if len(body) > limit:
                raise _too_large(limit)
            return body
        declared = self._request.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        self._task = asyncio.current_task()
        try:
            return await _read_parts(self._request.receive, limit)
        except asyncio.CancelledError:
            if not self._expired:
                raise
            assert self._task is not None
            self._task.uncancel()
            raise Refused(408, "The body did not arrive in time", headers=_CLOSE) from None
        finally:
            self._task = None

    def late(self) -> None:
        """Look after a request that takes its time: its body must come, its client must stay."""
        self._late = True
        if self._calls:
            self._watch()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._terms.body_timeout, self._expire)

    def _expire(self) -> None:
        if self._task is not None:
            self._expired = True
            self._task.cancel()

    # The answer

    async def serve(
        self, conversation: Running, calls: list[Call], status: "Callable[[PostOutlet], int]"
    ) -> None:
        """Run what the request asks for, and give the response."""
        if calls:
            self._conversation, self._calls = conversation, calls
            if self._late:
                self._stop_timer()
                self._watch()
            await conversation.run(calls)
        if self.before_answer is not None:
            await self.before_answer()
        if self.answer is not None:
            await self._respond(status(self), self.answer)
        elif calls:
            await self._finish_stream()
        else:
            await self._request.respond(202, b"")

    async def _respond(self, status: int, body: bytes) -> None:
        if len(body) < MIN_SIZE:
            await self._request.respond(status, body, self.headers)
            return
        accepted = self._request.headers.get(b"accept-encoding", b"")
        body, encoding = await encoded(body, accepted)
        headers = (*self.headers, (b"vary", b"accept-encoding"))
        if encoding is not None:
            headers = (*headers, (b"content-encoding", encoding))
        await self._request.respond(status, body, headers)

    async def _finish_stream(self) -> None:
        self.open_stream()
        assert self.stream is not None
        assert self._writer is not None
        if self._new_stream is not None:
            self.stream.end()  # also when the call was cancelled, and nothing will be said
        await asyncio.wait((self._writer,))
        if not self._dropped:
            self._writer.result()

    def close(self) -> None:
        """Let go of everything. What only this client waited for ends."""
        if self._timer is not None:
            self._stop_timer()
        if self._gone is not None:
            self._gone.cancel()
        if self._writer is not None:
            self._writer.cancel()
        waits = self._new_stream is None and self.answer is None
        if waits and self._conversation is not None:
            self._conversation.give_up(self._calls)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Show the client signs of life; without a session, also look whether it is still there."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._terms.keep_alive, self.open_stream)
        if self._new_stream is None:
            self._follow_client()

    def _follow_client(self) -> "asyncio.Task[None]":
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_task(disconnected(self._request.receive))
            self._gone.add_done_callback(self._left)
        return self._gone

    def _left(self, gone: "asyncio.Task[None]") -> None:
        if not gone.cancelled() and self._new_stream is None:
            assert self._conversation is not None
            self._conversation.give_up(self._calls)

    # As an outlet

    def send(self, message: bytes) -> None:
        """Say something before the answer: from here on it is a stream."""
        if self.open_stream():
            assert self.stream is not None
            self.stream.put(message)
            if self.stream.overrun and not self._dropped:
                self._drop()

    async def drained(self) -> None:
        """Wait until the client has read most of what was said."""
        if self.stream is not None and self.stream.is_full:
            await self.stream.until_room()

    def _drop(self) -> None:
        """Give up a client that has left too much unread: the stream that was lost was all it had."""
        self._dropped = True
        logger.warning("a client that does not read its stream was dropped")
        assert self._writer is not None
        assert self._conversation is not None
        self._writer.cancel()
        self._conversation.give_up(self._calls)

    def send_away(self, retry_ms: int) -> None:
        """Let the client hang up and come back for the rest, if it can."""
        if self._primes and self.open_stream():
            assert self.stream is not None
            self.stream.send_away(retry_ms)

    def finish(self, message: bytes, refused: bool = False) -> None:
        """Give the answer."""
        if self.stream is not None:
            self.stream.put(message)
            self.stream.end()
        elif self.answer is None:
            self.answer = message
            self.refused = refused

    def open_stream(self) -> bool:
        """Become a stream, whose client sees that the call goes on; whether it is one."""
        if self.answer is not None:
            return False
        if self.stream is None:
            make = self._new_stream
            self.stream = EventStream(self._terms.max_outgoing) if make is None else make()
            writing = self._write(self.stream.reader())
            if self._primes:
                self.stream.prime()
            self._writer = asyncio.get_running_loop().create_task(writing)
        return True

    async def _write(self, reader: StreamReader) -> None:
        gone = self._follow_client()
        await respond_stream(self._request, reader, gone, self._terms.pace, self.headers)


async def _read_parts(receive: Receive, limit: int) -> bytes:
    event = await receive()
    if not event.get("more_body", False) and event["type"] == "http.request":
        body: bytes = event.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts: list[bytes] = []
    size = 0
    while True:
        if event["type"] == "http.disconnect":
            raise Refused(400, "The client left before its body was complete")
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        if not event.get("more_body", False):
            return b"".join(parts)
        event = await receive()


def _too_large(limit: int) -> Refused:
    return Refused(413, f"The body is over the limit of {limit} bytes")
