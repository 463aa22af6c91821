"""HTTP+SSE of 2024-11-05, for clients that know nothing newer: one stream down, POSTs up.

`GET /sse` begins a session and stays open; its first event says where to POST. Every answer comes on
the stream. When the stream ends, so does the session.
"""

from typing import Any, Protocol
from urllib.parse import parse_qs

from mcpearl.net.http_server.request import EVENTS, Request
from mcpearl.net.sse import format_event
from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_server.checks import check_accept, check_type
from mcpearl.transports.http_server.event_stream import EventStream
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.post import PostOutlet, Terms
from mcpearl.transports.http_server.responses import respond_stream, watched
from mcpearl.transports.http_server.sessions import HttpSession, Sessions, SessionsFull

STREAM = "/sse"
MESSAGES = "/messages"
PATHS = (STREAM, MESSAGES)


def session_of(request: Request) -> str:
    """Return the session a POST names in its query."""
    try:
        query = parse_qs(request.query.decode("latin-1"), max_num_fields=10)
    except ValueError:
        return ""
    return query.get("session_id", [""])[0]


class SseHost(Protocol):
    """What is needed of the server."""

    limits: Limits

    def converse(self, transport: Any, principal: Any) -> Any:
        """Make the server's side of one client."""
        ...

    def time_left(self, principal: Any) -> float | None:
        """How many seconds a principal is good for; None for ever."""
        ...


class SseSession(HttpSession):
    """A session that lives on one stream and as long as it. What is lost there is lost."""

    __slots__ = ("full",)

    def __init__(self, id: str, limits: Limits, principal: Any, now: float) -> None:
        super().__init__(id, limits, principal, now)
        self.full = False  # has as much in hand as it takes

    def standing(self) -> EventStream:
        """The stream for everything."""
        if self._standing is None:
            self._standing = EventStream(None, self._limit)
        return self._standing

    def pause(self) -> None:
        """Refuse POSTs for now."""
        self.full = True

    def resume(self) -> None:
        """Take them again."""
        self.full = False


class HttpSse:
    """The two paths of the old transport, beside an endpoint of the new one."""

    def __init__(
        self, host: SseHost, terms: Terms, max_sessions: int, idle_timeout: float, prefix: str
    ) -> None:
        self._host = host
        self._terms = terms
        self._sessions: Sessions[SseSession] = Sessions(
            host.limits, max_sessions, idle_timeout, SseSession, prefix
        )

    async def get(self, request: Request, principal: Any) -> None:
        """Begin a session, and keep its stream open until one of the two ends it."""
        check_accept(request.headers, EVENTS)
        try:
            session = self._sessions.create(principal)
        except SessionsFull:
            raise busy("Too many sessions", 10) from None
        try:
            session.attach(self._host.converse(session, principal))
            place = f"{request.root}{MESSAGES}?session_id={session.id}"
            first = format_event(place.encode(), event="endpoint")
            reader = session.standing().reader(0)
            with watched(request, self._host.time_left(principal)) as gone:
                await respond_stream(request, reader, gone, self._terms.pace, first=first)
        finally:
            self._sessions.remove(session)

    async def post(self, request: Request, principal: Any, exchange: PostOutlet) -> None:
        """Take one message; what there is to say to it goes on the stream."""
        check_type(request.headers)
        session = self._sessions.find(session_of(request), principal)
        if session is None:
            raise Refused(404, f"There is no such session; begin one with GET {STREAM}")
        if session.full:
            raise busy("Too much of this session is in hand", 1)
        body = await exchange.read_body()
        if not session.closed:
            session.receiver.received([body])
        await request.respond(202, b"")

    def close(self) -> None:
        """End all sessions."""
        self._sessions.close()
