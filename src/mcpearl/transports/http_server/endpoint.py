"""Streamable HTTP, the server's side: one ASGI endpoint for every version at once.

What is checked of a request before its message is looked at, whose message it is, and which status an
answer travels with is decided here, straight on ASGI. The messages themselves are the protocol's
affair; how an answer leaves is `http_exchange`'s.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, Raw, UnsetType

from mcpearl.net.http_server.request import JSON, AsgiRequest, Receive, Request, Scope, Send
from mcpearl.net.http_server.timeouts import STALLED
from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import Malformed
from mcpearl.protocol.events import Call
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.modern import LISTEN
from mcpearl.protocol.versions import MODERN_VERSIONS, UNNAMED, VERSIONS, Version
from mcpearl.runtime.late import LateWatch
from mcpearl.stores.events import EventStore
from mcpearl.stores.memory_events import MemoryEventStore
from mcpearl.stores.sessions import SessionStore
from mcpearl.transports.http_server import sse_2024 as old_transport
from mcpearl.transports.http_server.gate import WELL_KNOWN, Gate, Refused, busy
from mcpearl.transports.http_server.header_check import is_modern, mismatch_of
from mcpearl.transports.http_server.origin import Location
from mcpearl.transports.http_server.post import Conversation, PostOutlet, Running, Terms
from mcpearl.transports.http_server.responses import (
    EVENTS,
    Pace,
    check_accept,
    check_type,
    preflight,
    readable_by,
    respond_stream,
    watched,
)
from mcpearl.transports.http_server.session_table import Sessions
from mcpearl.transports.http_server.sessions import HttpSession, StreamTerms
from mcpearl.transports.http_server.sse_2024 import HttpSse
from mcpearl.transports.http_server.status import legacy_status, modern_status
from mcpearl.transports.null import NullTransport
from mcpearl.transports.websocket.asgi import AsgiWebSockets
from mcpearl.types.jsonrpc import PARSE_ERROR

if TYPE_CHECKING:
    from mcpearl.transports.http_server.siblings import Siblings

_WATCH_AFTER = 0.2  # seconds a request may take before anybody looks after it
_LAST_CALLS = 5.0  # seconds calls on a WebSocket have to finish, at the end
_PUBLIC = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-headers", b"*"),  # browsers ask first when a client sends its own
)
_METHODS = frozenset({"POST", "GET", "DELETE"})
_CHANGES_SESSION = frozenset(
    {
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)
_ALLOW = ((b"allow", b"GET, POST, DELETE, OPTIONS"),)
_POST_ONLY = ((b"allow", b"POST, OPTIONS"),)


class SoloConversation(Running, Protocol):
    """The server's side of all clients that have no session."""

    def receive_from(
        self, principal: Any, message: bytes | Envelope, outlet: PostOutlet
    ) -> list[Call]:
        """Take one message of this principal; return the calls to run."""
        ...

    def end_listeners(self) -> None:
        """End every subscription in order, with its result."""
        ...

    def lost(self, reason: Exception | None) -> None:
        """Release everything: the server ends."""
        ...


class Host(Protocol):
    """What an endpoint needs of the server."""

    limits: Limits
    nobody: Any
    """Who everybody is to the server, where there is no gate that asks."""

    def converse(self, transport: Any, principal: Any) -> Conversation:
        """Make the server's side of one client."""
        ...

    def converse_alone(self) -> SoloConversation:
        """Make the server's side of clients that have no session."""
        ...

    def tool_headers(self, name: str, arguments: Raw | UnsetType) -> list[tuple[str, str | None]]:
        """The headers a call of this tool must have; None for one it must not have."""
        ...

    def needs(self, message: Envelope, principal: Any) -> frozenset[str]:
        """The scopes a message needs, when its principal does not have them all."""
        ...

    def time_left(self, principal: Any) -> float | None:
        """How many seconds a principal is good for; None for ever."""
        ...


class Endpoint:
    """The ASGI application of one server.

    >>> asgi_app = app.asgi()
    """

    def __init__(
        self,
        host: Host,
        *,
        path: str = "/mcp",
        allowed_hosts: frozenset[str] | None = None,
        allowed_origins: frozenset[str] | None = None,
        stateless: bool = False,
        max_sessions: int = 100_000,
        idle_timeout: float = 1800.0,
        initialize_timeout: float = 60.0,
        max_history: int = 256 * 1024 * 1024,
        max_requests: int = 10_000,
        max_streams: int = 100_000,
        body_timeout: float = 30.0,
        keep_alive: float = 15.0,
        stall_timeout: float = STALLED,
        http_sse: bool = False,
        gate: Gate | None = None,
        lifespan: Callable[[], Any] | None = None,
        websockets: AsgiWebSockets | None = None,
        siblings: "Siblings | None" = None,
        session_store: SessionStore | None = None,
        event_store: EventStore | None = None,
    ) -> None:
        limits = host.limits
        self._host = host
        self._place = Location(path, allowed_hosts, allowed_origins)
        self._stateless = stateless
        prefix = "" if siblings is None else siblings.prefix
        self._siblings = siblings
        self._own_events = MemoryEventStore(max_history, limits.max_outgoing)
        events = self._own_events if event_store is None else event_store
        self._keeps_records = session_store is not None
        self._sessions = Sessions(
            HttpSession,
            host.converse,
            StreamTerms(limits.max_outgoing, events),
            max_sessions=max_sessions,
            idle_timeout=idle_timeout,
            initialize_timeout=initialize_timeout,
            prefix=prefix,
            store=session_store,
        )
        self._max_requests = max_requests
        self._max_streams = max_streams
        self._terms = Terms(
            limits.max_message,
            body_timeout,
            limits.max_outgoing,
            keep_alive,
            Pace(keep_alive, stall_timeout),
            LateWatch(_WATCH_AFTER),
        )
        self._sse = None
        if http_sse:
            self._sse = HttpSse(host, self._terms, max_sessions, idle_timeout, prefix)
        self._sse_places = {
            path: Location(path, allowed_hosts, allowed_origins) for path in old_transport.PATHS
        }
        self._gate = gate
        self._lifespan = lifespan
        self._websockets = websockets
        self._open = 0  # requests being answered
        self._streams = 0  # streams that wait for something to be said
        self._solo: SoloConversation | None = None  # with all who have no session

    # ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request of an ASGI server."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket" and self._websockets is not None:
            await self._websockets(scope, receive, send)
        elif scope["type"] == "http":
            await self.serve(AsgiRequest(scope, receive, send))
        else:
            raise RuntimeError(f"an MCP endpoint answers HTTP, not {scope['type']}")

    # Any request

    async def serve(self, request: Request) -> None:
        """Answer one HTTP request."""
        self._open += 1
        try:
            document = None
            if self._gate is not None and request.path.startswith(WELL_KNOWN):
                document = self._gate.document(request.scope)
            if document is None:
                await self._respond(request)
            else:
                await request.respond(200, document, _PUBLIC)
        except Refused as refused:
            body = codec.encode_error(None, refused.error)
            await request.respond(refused.status, body, refused.headers)
        finally:
            self._open -= 1

    async def _respond(self, request: Request) -> None:
        """Answer a request for no document."""
        headers, path, method = request.headers, request.path, request.method
        old = self._sse is not None and path in self._sse_places
        (self._sse_places[path] if old else self._place).check(path, headers)
        if b"origin" in headers:
            request.extra = readable_by(headers[b"origin"])
        if method == "OPTIONS":
            await request.respond(204, b"", preflight(headers))
            return
        if self._open > self._max_requests:
            raise busy("Too many requests at once", 1)
        principal = self._host.nobody
        if self._gate is not None:
            scope = request.scope
            principal = self._gate.known(scope, headers) or await self._gate.admit(scope, headers)
        if method not in _METHODS:
            raise Refused(405, f"{method} is not a method of this endpoint", headers=_ALLOW)
        owner = None if self._siblings is None else self._owner(request)
        if owner is not None:
            await self._pass_on(owner, request)
        elif old:
            await self._serve_old(request, principal)
        elif method == "POST":
            await self._post(request, principal)
        elif method == "GET":
            await self._get(request, principal)
        else:
            await self._delete(request, principal)

    def _owner(self, request: Request) -> int | None:
        """Which other process the session of a request lives in, if that is so."""
        assert self._siblings is not None
        id = request.headers.get(b"mcp-session-id", b"").decode("latin-1")
        if self._sse is not None:
            id = id or old_transport.session_of(request.scope)
        return self._siblings.owner_of(id)

    async def _pass_on(self, owner: int, request: Request) -> None:
        assert self._siblings is not None
        with PostOutlet(self._terms, request) as exchange:
            body = await exchange.read_body()
        request.extra = ()  # the owner says the same
        with self._as_stream() if request.method == "GET" else nullcontext():
            await self._siblings.pass_on(owner, request, body, self._terms.keep_alive)

    # POST

    async def _post(self, request: Request, principal: Any) -> None:
        headers = request.headers
        check_type(headers)
        check_accept(headers, JSON, EVENTS)
        with PostOutlet(self._terms, request) as exchange:
            body = await exchange.read_body()
            message = _decode(body)
            if message is not None and self._gate is not None:
                self._check_scopes(message, request, principal)
            if is_modern(message, headers):
                await self._serve_alone(exchange, message or body, headers, principal)
            elif self._stateless:
                await self._serve_stateless(exchange, message or body, headers, principal)
            else:
                await self._serve_session(exchange, message or body, headers, principal)

    def _check_scopes(self, message: Envelope, request: Request, principal: Any) -> None:
        assert self._gate is not None
        needed = self._host.needs(message, principal)
        if needed:
            raise self._gate.insufficient(request.scope, request.headers, needed)

    async def _serve_alone(
        self,
        exchange: PostOutlet,
        message: Envelope | bytes,
        headers: dict[bytes, bytes],
        principal: Any,
    ) -> None:
        """Serve a request that stands for itself."""
        solo = self._solo
        if solo is None:
            solo = self._solo = self._host.converse_alone()
        if isinstance(message, Envelope):
            mismatch = mismatch_of(message, headers, self._host.tool_headers)
            if mismatch is not None:
                id = None if message.id is UNSET else message.id
                exchange.finish(codec.encode_error(id, mismatch), refused=True)
                await exchange.serve(solo, [], modern_status)
                return
            if message.method == LISTEN:
                with self._as_stream():
                    calls = solo.receive_from(principal, message, exchange)
                    await exchange.serve(solo, calls, modern_status)
                return
        calls = solo.receive_from(principal, message, exchange)
        await exchange.serve(solo, calls, modern_status)

    @contextmanager
    def _as_stream(self) -> Iterator[None]:
        """Count what only waits for something to be said as a stream, and not as a request."""
        if self._streams >= self._max_streams:
            raise busy("Too many streams", 10)
        self._streams += 1
        self._open -= 1
        try:
            yield
        finally:
            self._streams -= 1
            self._open += 1

    async def _serve_stateless(
        self,
        exchange: PostOutlet,
        message: Envelope | bytes,
        headers: dict[bytes, bytes],
        principal: Any,
    ) -> None:
        """Serve a legacy request without keeping a session."""
        version = _legacy_version(headers)
        conversation = self._host.converse(NullTransport(), principal)
        try:
            if not _initializes(message):
                conversation.speak(version.name)
            calls = conversation.receive(message, exchange)
            await exchange.serve(conversation, calls, legacy_status)
        finally:
            conversation.lost(None)

    async def _serve_session(
        self,
        exchange: PostOutlet,
        message: Envelope | bytes,
        headers: dict[bytes, bytes],
        principal: Any,
    ) -> None:
        """Serve a message of a session, or begin one."""
        version = _legacy_version(headers)
        begins = _initializes(message) and b"mcp-session-id" not in headers
        if begins:
            session = self._sessions.create(principal)
        else:
            id = _session_id(headers)
            found = self._sessions.find(id, principal)
            session = found or await self._restored(id, principal)
        exchange.belong(session.new_stream, version.primes_streams)
        session.enter()
        try:
            calls = session.receiver.receive(message, exchange)
            if begins:
                if exchange.refused:
                    session.end()
                else:
                    self._sessions.add(session)
                    exchange.headers = ((b"mcp-session-id", session.id.encode()),)
            if self._keeps_records and not exchange.refused and _may_change(message):
                exchange.before_answer = partial(self._sessions.save, session)
            await exchange.serve(session.receiver, calls, legacy_status)
        finally:
            self._sessions.leave(session)

    async def _restored(self, id: str, principal: Any) -> HttpSession:
        """Return a session this process does not have yet, or refuse the request."""
        session = await self._sessions.restore(id, principal)
        if session is None:
            raise Refused(404, "There is no such session; begin a new one with `initialize`")
        return session

    # GET and DELETE

    async def _get(self, request: Request, principal: Any) -> None:
        """Open the standing stream of a session, or go on with a broken one."""
        headers = request.headers
        version = self._version_of_session(headers)
        check_accept(headers, EVENTS)
        id = _session_id(headers)
        session = self._sessions.find(id, principal) or await self._restored(id, principal)
        session.enter()
        try:
            with self._as_stream():
                await self._listen(request, session, version)
        finally:
            self._sessions.leave(session)

    async def _listen(self, request: Request, session: HttpSession, version: Version) -> None:
        last = request.headers.get(b"last-event-id")
        if last is None:
            reader = await session.listen(version.primes_streams)
        else:
            reader = await session.listen_after(last.decode("latin-1"))
        try:
            left = self._host.time_left(session.principal)
            with watched(request.receive, left) as gone:
                await respond_stream(request, reader, gone, self._terms.pace)
        finally:
            reader.close()

    async def _delete(self, request: Request, principal: Any) -> None:
        """End a session at its client's wish."""
        self._version_of_session(request.headers)
        id = _session_id(request.headers)
        session = self._sessions.find(id, principal) or await self._restored(id, principal)
        await self._sessions.delete(session)
        await request.respond(204, b"")

    def _version_of_session(self, headers: dict[bytes, bytes]) -> Version:
        """The version of a request only sessions have."""
        if headers.get(b"mcp-protocol-version", b"").decode("latin-1") in MODERN_VERSIONS:
            raise Refused(405, "This version has POST only, and no sessions", headers=_POST_ONLY)
        if self._stateless:
            raise Refused(405, "This endpoint keeps no sessions", headers=_POST_ONLY)
        return _legacy_version(headers)

    # HTTP+SSE

    async def _serve_old(self, request: Request, principal: Any) -> None:
        """Serve a client that knows only the first version."""
        assert self._sse is not None
        match request.method, request.path:
            case "GET", old_transport.STREAM:
                with self._as_stream():
                    await self._sse.get(request, principal)
            case "POST", old_transport.MESSAGES:
                with PostOutlet(self._terms, request) as exchange:
                    await self._sse.post(request, principal, exchange)
            case method, path:
                raise Refused(405, f"{method} is not a method of {path}", headers=_ALLOW)

    # Life

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        up = False
        try:
            async with self.running():
                up = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except BaseException as error:
            stage = "shutdown" if up else "startup"
            await send({"type": f"lifespan.{stage}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the server up, for an application this one is mounted in.

        >>> asgi_app = app.asgi()
        >>> Starlette(routes=[Mount("/", asgi_app)], lifespan=lambda _: asgi_app.running())
        """
        async with nullcontext() if self._lifespan is None else self._lifespan():
            try:
                yield
            finally:
                await self.close()

    def end_streams(self) -> None:
        """End in order what would stay open for ever; calls go on."""
        if self._solo is not None:
            self._solo.end_listeners()
        for session in self._sessions.all():
            session.end_standing()
        if self._sse is not None:
            self._sse.end_streams()

    async def close(self) -> None:
        """End every stream and session in order."""
        if self._websockets is not None:
            await self._websockets.drain(_LAST_CALLS)
        self.end_streams()
        await asyncio.sleep(0)
        self._sessions.close()
        await self._own_events.close()
        if self._sse is not None:
            self._sse.close()
        if self._siblings is not None:
            self._siblings.close()
        if self._solo is not None:
            self._solo.lost(None)
            self._solo = None
        self._terms.lingering.stop()
        self._terms.pace.stop()


def _legacy_version(headers: dict[bytes, bytes]) -> Version:
    given = headers.get(b"mcp-protocol-version")
    if given is None:
        return UNNAMED
    name = given.decode("latin-1")
    if name not in VERSIONS:
        supported = ", ".join(VERSIONS)
        raise Refused(400, f"Unsupported protocol version {name[:64]!r}; there is {supported}")
    return VERSIONS[name]


def _session_id(headers: dict[bytes, bytes]) -> str:
    id = headers.get(b"mcp-session-id")
    if id is None:
        raise Refused(400, "Mcp-Session-Id header is missing; begin with `initialize`")
    return id.decode("latin-1")


def _may_change(message: Envelope | bytes) -> bool:
    """Whether a message may change what is stored of its session; a batch may hold anything."""
    return not isinstance(message, Envelope) or message.method in _CHANGES_SESSION


def _initializes(message: Envelope | bytes) -> bool:
    return isinstance(message, Envelope) and message.method == "initialize"


def _decode(body: bytes) -> Envelope | None:
    """Read a message; None for a batch, or what is none: the protocol says what is wrong with it."""
    try:
        return codec.decode(body)
    except Malformed as error:
        if error.code == PARSE_ERROR:
            raise Refused(400, error.message, error.code) from None
        return None
