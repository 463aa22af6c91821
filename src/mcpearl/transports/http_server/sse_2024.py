"""HTTP+SSE of 2024-11-05, for clients that know no newer transport: one stream down, POSTs up.

`GET /sse` begins a session and stays open; its first event says where to POST. Every answer comes on
the stream. When the stream ends, so does the session.
"""

from typing import Any
from urllib.parse import parse_qs

import msgspec

from mcpearl.net.http_server.request import EVENTS, Request
from mcpearl.net.sse import format_event
from mcpearl.runtime.budget import Account, Holding
from mcpearl.runtime.tree import Node
from mcpearl.stores.errors import RETRY_AFTER, TOLD, StoreUnavailable
from mcpearl.stores.sessions import Identity
from mcpearl.stores.shared import ProcessRelay
from mcpearl.transports.http_server.admission import Admission
from mcpearl.transports.http_server.checks import check_accept, check_type
from mcpearl.transports.http_server.event_stream import EventStream
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.host import EndpointHost
from mcpearl.transports.http_server.legacy import ALLOW
from mcpearl.transports.http_server.post import PostOutlet, Terms
from mcpearl.transports.http_server.responses import respond_stream, watched
from mcpearl.transports.http_server.session_table import SessionTable
from mcpearl.transports.http_server.sessions import StreamTerms, TransportSession

STREAM = "/sse"
MESSAGES = "/messages"
PATHS = (STREAM, MESSAGES)
_TOPIC = "sse"


def session_of(request: Request) -> str:
    """Return the session a POST names in its query; empty when it names none."""
    return _asked(request, "session_id")


def _asked(request: Request, name: str) -> str:
    try:
        query = parse_qs(request.query.decode("latin-1"), max_num_fields=10)
    except ValueError:
        return ""
    return query.get(name, [""])[0]


class SseSession(TransportSession):
    """A session that lasts as long as its one stream. Events that the stream loses are not sent again."""

    __slots__ = ("is_full", "request", "stream")

    def __init__(self, terms: StreamTerms, principal: Any, now: float) -> None:
        super().__init__(terms, principal, now)
        self.request: Request | None = None  # the one that opened the stream
        self.is_full = False  # as many calls are in flight as a client may have

    def charge(self, account: Account, charged: Holding) -> None:
        """Take over the account of the caller, and begin the stream."""
        super().charge(account, charged)
        self.stream = EventStream(self._terms.limit, account)

    def send(self, message: bytes) -> None:
        """Send a message; there is one stream for all of them."""
        self.stream.put(message)

    def pause(self) -> None:
        """Refuse POSTs for now."""
        self.is_full = True

    def resume(self) -> None:
        """Accept POSTs again."""
        self.is_full = False

    def _end_streams(self) -> None:
        self.stream.end()


class HttpSse:
    """The two paths of the old transport, beside an endpoint of the new one."""

    def __init__(
        self,
        host: EndpointHost,
        terms: Terms,
        max_sessions: int,
        idle_timeout: float,
        prefix: str,
        relay: ProcessRelay | None = None,
    ) -> None:
        """Create the transport, without sessions.

        Args:
            host: The server.
            terms: What the endpoint grants every request.
            max_sessions: How many sessions there may be.
            idle_timeout: Seconds after which an unused session ends; one whose stream is open is used.
            prefix: The beginning of every session's id.
            relay: The way to other processes, at which messages may land.
        """
        self._relay = relay
        self._stop = None if relay is None else relay.receive(_TOPIC, self._passed_on)
        self._host = host
        self._terms = terms
        self._sessions: SessionTable[SseSession] = SessionTable(
            SseSession,
            host.converse,
            StreamTerms(host.limits.max_outgoing, None),
            max_sessions=max_sessions,
            idle_timeout=idle_timeout,
            initialize_timeout=idle_timeout,
            prefix=prefix,
            budget=host.budget,
            name="the HTTP+SSE sessions of an endpoint",
        )

    async def serve(self, request: Request, principal: Any, admission: Admission) -> None:
        """Answer a request for one of the two paths.

        Args:
            request: The request.
            principal: Its principal.
            admission: Counts the streams of the endpoint.
        """
        asked = request.method, request.path
        if asked == ("GET", STREAM):
            with admission.as_stream():
                await self._get(request, principal)
        elif asked == ("POST", MESSAGES):
            await self._post(request, principal, PostOutlet(self._terms, request, principal))
        else:
            raise Refused(405, "{} is not a method of {}".format(*asked), headers=ALLOW)

    async def _get(self, request: Request, principal: Any) -> None:
        """Begin a session, and keep its stream open until the client or the server ends it."""
        check_accept(request.headers, EVENTS)
        caller = self._terms.callers.key_of(principal, request)
        session = self._sessions.create(principal, caller)
        session.request = request
        self._sessions.add(session)
        session.open += 1
        try:
            place = f"{request.root}{MESSAGES}?session_id={session.id}"
            if self._relay is not None:
                place += f"&at={self._relay.number}"
            first = format_event(place.encode(), event="endpoint")
            reader = session.stream.reader()
            with watched(request, self._host.time_left(principal)) as gone:
                await respond_stream(request, reader, gone, self._terms.pace, first=first)
        finally:
            self._sessions.remove(session)

    async def _post(self, request: Request, principal: Any, exchange: PostOutlet) -> None:
        """Accept one message; answers to it go on the stream."""
        check_type(request.headers)
        session = self._sessions.find(session_of(request), principal)
        if session is None and (owner := self._owner(request)):
            await self._pass_on(owner, request, principal, await exchange.read_body())
            return
        if session is None:
            raise Refused(404, f"There is no such session; begin one with GET {STREAM}")
        _check_room(session)
        body = await exchange.read_body()
        _check_room(session)  # other messages of it may have come meanwhile
        if not session.closed:
            session.receiver.received([body])
        await request.respond(202, b"")

    def node(self) -> Node:
        """Return what looks after the sessions, as a part of a tree."""
        return self._sessions.node()

    def _owner(self, request: Request) -> int:
        """Return the process that a message names; 0 if it names none that may have the session."""
        given = _asked(request, "at")
        if self._relay is None or len(given) > 9 or not (given.isascii() and given.isdigit()):
            return 0
        if int(given) == self._relay.number and not self._relay.beside(_TOPIC, self._passed_on):
            return 0
        return int(given)

    async def _pass_on(self, owner: int, request: Request, principal: Any, body: bytes) -> None:
        """Hand a message to the process that has the stream; acknowledge it once it is sure to arrive."""
        assert self._relay is not None
        passed = msgspec.msgpack.encode((session_of(request), principal.identity, body))
        try:
            if owner == self._relay.number:
                for hear in self._relay.beside(_TOPIC, self._passed_on):
                    hear(passed)
            else:
                await self._relay.pass_to(owner, _TOPIC, passed)
        except StoreUnavailable:
            raise busy(f"The message could not be passed on: {TOLD}", RETRY_AFTER) from None
        await request.respond(202, b"")

    def _passed_on(self, passed: bytes) -> None:
        """Take a message that landed at another process."""
        id, identity, body = msgspec.msgpack.decode(passed, type=tuple[str, Identity, bytes])
        session = self._sessions.here(id)
        if session is not None and session.principal.identity == identity:
            session.receiver.received([body])

    def receiver_of(self, id: str) -> Any:
        """Return the server's side of a session that is here; None for any other."""
        session = self._sessions.here(id)
        return None if session is None else session.receiver

    def end_streams(self) -> None:
        """End every session once its calls are answered, within the server's grace period."""
        for session in self._sessions.all():
            session.receiver.ended()

    def close(self) -> None:
        """End all sessions."""
        if self._stop is not None:
            self._stop()
        self._sessions.close()


def _check_room(session: SseSession) -> None:
    if session.is_full:
        raise busy("Too much of this session is in hand", 1)
