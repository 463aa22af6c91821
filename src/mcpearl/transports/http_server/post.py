"""One POST: its body comes in, its message is served, its answer goes out.

The answer is plain JSON if nothing was sent before it, and a stream of events from the first
notification on. A call runs in the task of its request; only a stream has another task, which writes it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mcpearl.net.http_server.compression import MIN_SIZE, encoded
from mcpearl.net.http_server.request import (
    BodyTooLarge,
    ClientLeft,
    HeaderMap,
    HeaderPairs,
    Request,
    Work,
)
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.events import Call
from mcpearl.protocol.weight import weight_of
from mcpearl.runtime.budget import Account, Holding, NoRoom
from mcpearl.runtime.late import LateWatch
from mcpearl.transports.http_server.callers import Callers
from mcpearl.transports.http_server.event_stream import EventStream, StreamReader
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.responses import Pace, respond_stream

if TYPE_CHECKING:
    from mcpearl.transports.http_server.session_table import SessionTable
    from mcpearl.transports.http_server.sessions import HttpSession

logger = logging.getLogger("mcpearl.http")
_CLOSE = ((b"connection", b"close"),)


class CallRunner(Protocol):
    """Runs the calls of a request."""

    def run_at_once(self, calls: list[Call]) -> bool:
        """Run a single call that is known not to wait; return False unless all were run to their end."""
        ...

    def run(self, calls: list[Call]) -> Work:
        """Run what is left of the calls to its end, a single one in the current task."""
        ...

    def give_up(self, calls: Sequence[Call]) -> None:
        """End calls whose client no longer waits for them."""
        ...


class ServedClient(CallRunner, Protocol):
    """The server's side of one client, as far as HTTP needs it."""

    def receive(self, message: bytes | Envelope, outlet: "PostOutlet") -> list[Call]:
        """Take one message, which may be decoded already; return the calls to run."""
        ...

    def speak(self, version: str) -> None:
        """Treat the session as initialized in this version."""
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
    lingering: LateWatch  # watches the POSTs that had to wait for something
    callers: Callers  # has the account of each caller


class PostOutlet:
    """A POST under way. It is the `Outlet` of its answer, and closed when its request is over."""

    medium = "http"

    # Attributes that every request uses are slots, which are faster to read.
    __slots__ = (
        "__dict__",
        "_calls",
        "_conversation",
        "_late",
        "_primes",
        "_principal",
        "_request",
        "_session",
        "_sessions",
        "_terms",
        "answer",
        "before_answer",
        "headers",
        "lingers",
        "refused",
        "stream",
    )

    # Most requests are answered at once; for those, these defaults hold.
    _holding: Holding | None = None  # of a large body
    _expired = False  # the body took too long
    _task: "asyncio.Task[Any] | None" = None  # waits for the body
    _timer: asyncio.TimerHandle | None = None
    _gone: "asyncio.Task[None] | None" = None  # done when the client has left
    _writer: "asyncio.Task[None] | None" = None
    _dropped = False  # the client did not read
    _has_begun = False  # some of the stream has been sent

    def __init__(self, terms: Terms, request: Request, principal: Any) -> None:
        self._terms = terms
        self._request = request
        self._principal = principal
        self._conversation: CallRunner | None = None  # runs the calls
        self._calls: Sequence[Call] = ()
        self._late = False
        self._session: HttpSession | None = None  # whose stream can be resumed
        self._primes = False  # a stream begins with an empty event, in versions that have it
        self.lingers = False  # the request could not be answered in place
        self.answer: bytes | None = None
        self.refused = False  # the answer is an error of the request itself
        self.headers: HeaderPairs = ()
        """Headers of the response beside the usual ones."""
        self.before_answer: Callable[[], Awaitable[None]] | None = None
        """Awaited before the answer leaves: what it acknowledges is stored first."""
        self.stream: EventStream | None = None
        request.waiter = self
        if not request.in_place:
            self.waits()

    @property
    def address(self) -> str | None:
        """The client's address, where the socket has one."""
        address = self._request.peer.address
        return None if address is None else address[0]

    @property
    def request_headers(self) -> HeaderMap:
        """The headers of the request."""
        return self._request.headers

    @property
    def session_id(self) -> str | None:
        """The id of the session the request belongs to."""
        id = None if self._session is None else self._request.headers.get(b"mcp-session-id")
        return None if id is None else id.decode("latin-1")

    def waits(self) -> None:
        """Note that the request could not be answered in place: from now on its time is watched."""
        self.lingers = True
        self._terms.lingering.add(self)

    def belong(
        self, session: "HttpSession", sessions: "SessionTable[HttpSession]", primes: bool
    ) -> None:
        """Make the POST part of a session: calls outlive their client, and the stream can be resumed.

        The table of sessions is notified when the request is over.
        """
        self._session = session
        self._sessions = sessions
        self._primes = primes

    # The request

    @property
    def account(self) -> Account:
        """Counts what is held for the client."""
        return self._terms.callers.account_of(self._principal, self._request)

    async def read_body(self, most: int | None = None) -> bytes:
        """Return the whole body, within its bounds. It is counted until the outlet is closed.

        `most` is the number of bytes it may have; by default, as many as a message.
        """
        request, limit = self._request, self._terms.max_body if most is None else most
        holding = self._holding = self.account.open("bodies")
        self.lingers = True
        declared = request.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        self._task = asyncio.current_task()
        try:
            body = await request.read(limit, holding)
            holding.grow(weight_of(body))
            return body
        except NoRoom as error:
            raise busy(str(error), 1) from None
        except BodyTooLarge:
            raise _too_large(limit) from None
        except ClientLeft:
            raise Refused(400, "The client left before its body was complete") from None
        except asyncio.CancelledError:
            if not self._expired:
                raise
            assert self._task is not None
            self._task.uncancel()
            raise Refused(408, "The body did not arrive in time", headers=_CLOSE) from None
        finally:
            self._task = None

    def late(self) -> None:
        """Watch a request that takes long: its body must arrive, its client must stay."""
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

    def serve(
        self, conversation: CallRunner, calls: list[Call], status: "Callable[[PostOutlet], int]"
    ) -> Work | None:
        """Run the calls and send the response; return a coroutine for what has to wait, if anything has.

        `status` finds the status of an error.
        """
        if calls:
            self._conversation, self._calls = conversation, calls
            if self._late:
                self._stop_timer()
                self._watch()
            if not conversation.run_at_once(calls):
                return self._run(conversation, calls, status)
        answer = self.answer
        if answer is None or self.before_answer is not None:
            return self._finish(calls, status)
        return self._respond(answer, status)

    async def _run(
        self, conversation: CallRunner, calls: list[Call], status: "Callable[[PostOutlet], int]"
    ) -> None:
        await conversation.run(calls)
        answer = self.answer
        if answer is None or self.before_answer is not None:
            await self._finish(calls, status)
            return
        responding = self._respond(answer, status)
        if responding is not None:
            await responding

    async def _finish(self, calls: list[Call], status: "Callable[[PostOutlet], int]") -> None:
        """Respond, after what the answer acknowledges was stored; without an answer, end the stream."""
        if self.before_answer is not None:
            await self._store_first(self.before_answer)
        if self.answer is None:
            await (self._finish_stream() if calls else self._request.respond(202, b""))
            return
        responding = self._respond(self.answer, status)
        if responding is not None:
            await responding

    def _respond(self, answer: bytes, status: "Callable[[PostOutlet], int]") -> Work | None:
        """Send the answer as the whole response."""
        calls, self._calls = self._calls, ()  # a call refers to its outlet: this breaks the cycle
        is_error = self.refused or (calls and calls[0].failed and calls[0].batch is None)
        code = status(self) if is_error else 200
        if len(answer) >= MIN_SIZE:
            return self._respond_compressed(code, answer)
        request = self._request
        if request.respond_now(code, answer, self.headers):
            return None
        return request.respond(code, answer, self.headers)

    async def _store_first(self, store: Callable[[], Awaitable[None]]) -> None:
        """Store what the answer acknowledges. If that fails, a stream that has begun ends without it."""
        stream = self.stream
        if stream is None:
            await store()
            return
        try:
            await store()
            if self.answer is not None:
                stream.put(self.answer)
        except Refused as refused:
            logger.warning("an answer was dropped: %s", refused)
        self.answer = None

    async def _respond_compressed(self, status: int, body: bytes) -> None:
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
        if self._session is not None:
            self.stream.end()  # also if the call was cancelled, and there is no answer
        await asyncio.wait((self._writer,))
        if not self._dropped:
            self._writer.result()
        elif not self._has_begun:
            raise busy(self.account.refusal, 1)

    def close(self) -> None:
        """Release everything, and end the calls whose answers only this client waited for."""
        if self._session is not None:
            self._sessions.leave(self._session)
        if self.lingers or self.answer is None:
            self._release()  # otherwise it holds nothing

    def _release(self) -> None:
        self._terms.lingering.discard(self)
        if self._holding is not None:
            self._holding.release()
        self._stop_timer()
        if self._gone is not None:
            self._gone.cancel()
        if self._writer is not None:
            self._writer.cancel()
        waits = self._session is None and self.answer is None
        if waits and self._conversation is not None:
            self._conversation.give_up(self._calls)
        self._calls = ()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Send signs of life; without a session, also notice when the client leaves."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._terms.keep_alive, self.open_stream)
        if self._session is None:
            self._follow_client()

    def _follow_client(self) -> "asyncio.Task[None]":
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_task(self._request.until_gone())
            self._gone.add_done_callback(self._left)
        return self._gone

    def _left(self, gone: "asyncio.Task[None]") -> None:
        if not gone.cancelled() and self._session is None:
            assert self._conversation is not None
            self._conversation.give_up(self._calls)

    # As an outlet

    def send(self, message: bytes) -> None:
        """Send a message before the answer: from here on the response is a stream."""
        if self.open_stream():
            assert self.stream is not None
            self.stream.put(message)
            if self.stream.overrun and not self._dropped:
                self._drop()

    async def drained(self) -> None:
        """Wait until the client has read most of what was sent."""
        if self.stream is not None and self.stream.is_full:
            await self.stream.until_room()

    def _drop(self) -> None:
        """Give up a client that has left too much unread."""
        self._dropped = True
        logger.warning("a client that does not read its stream was dropped")
        assert self._writer is not None
        assert self._conversation is not None
        self._writer.cancel()
        self._conversation.give_up(self._calls)

    def send_away(self, retry_ms: int) -> None:
        """Make the client disconnect and come back for the rest, if its version has that."""
        if self._primes and self.open_stream():
            assert self.stream is not None
            self.stream.send_away(retry_ms)

    def finish(self, message: bytes, refused: bool = False) -> None:
        """Send the answer."""
        if self.stream is not None and self.before_answer is None:
            self.stream.put(message)
            self.stream.end()
        elif self.answer is None:
            self.answer = message
            self.refused = refused

    def refuse(self, message: bytes) -> None:
        """Answer with an error of the request itself, before anything of it was run."""
        self.answer = message
        self.refused = True

    def open_stream(self) -> bool:
        """Become a stream, unless there is an answer; return whether it is one."""
        if self.answer is not None:
            return False
        if self.stream is None:
            if self._session is None:
                self.stream = EventStream(self._terms.max_outgoing, self.account)
            else:
                self.stream = self._session.new_stream(self._calls)
            writing = self._write(self.stream.reader())
            if self._primes:
                self.stream.prime()
            self._writer = asyncio.get_running_loop().create_task(writing)
        return True

    async def _write(self, reader: StreamReader) -> None:
        self._has_begun = True
        gone = self._follow_client()
        await respond_stream(self._request, reader, gone, self._terms.pace, self.headers)


def _too_large(limit: int) -> Refused:
    return Refused(413, f"The body is over the limit of {limit} bytes")
