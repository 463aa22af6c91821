"""Streamable HTTP, the server's side: one endpoint for every version at once.

This module decides what is checked before a message is looked at, which client the message is from, and
what serves it. The protocol handles the messages themselves; `post` sends the answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from mcpearl.net.http_server.asgi_request import AsgiHeads, AsgiRequest, Receive, Scope, Send
from mcpearl.net.http_server.noted_requests import NotedAsgiRequest
from mcpearl.net.http_server.request import ClientLeft, Request, Serving, Work
from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import Malformed
from mcpearl.protocol.modern import LISTEN
from mcpearl.runtime import clock
from mcpearl.runtime.late import LateWatch
from mcpearl.runtime.tree import Node
from mcpearl.stores.memory_events import MemoryEventStore
from mcpearl.transports.http_server import sse_2024
from mcpearl.transports.http_server.access_log import AccessLog, access_log
from mcpearl.transports.http_server.admission import Admission
from mcpearl.transports.http_server.admitted_post import Post
from mcpearl.transports.http_server.asgi_life import AsgiLife
from mcpearl.transports.http_server.beside import BesideMcp
from mcpearl.transports.http_server.callers import Callers
from mcpearl.transports.http_server.checks import HeadNotes, Serve, read_post
from mcpearl.transports.http_server.cors import preflight, readable_by
from mcpearl.transports.http_server.gate import Gate, Refused
from mcpearl.transports.http_server.header_check import MODERN_ONLY, MessageHeaders
from mcpearl.transports.http_server.host import EndpointHost, SoloConversation
from mcpearl.transports.http_server.legacy import LegacyRequests
from mcpearl.transports.http_server.origin import ServedLocation
from mcpearl.transports.http_server.pages import Pages
from mcpearl.transports.http_server.post import PostOutlet, Terms
from mcpearl.transports.http_server.refused_requests import RefusedRequests
from mcpearl.transports.http_server.responses import Pace
from mcpearl.transports.http_server.reverse import Reverse
from mcpearl.transports.http_server.session_table import SessionTable
from mcpearl.transports.http_server.sessions import HttpSession, StreamTerms
from mcpearl.transports.http_server.settings import EndpointSettings
from mcpearl.transports.http_server.sse_2024 import HttpSse
from mcpearl.transports.http_server.status import modern_status
from mcpearl.transports.mirrored_headers import NAMED_BY
from mcpearl.types.jsonrpc import PARSE_ERROR

if TYPE_CHECKING:
    from mcpearl.stores.shared import ProcessRelay
    from mcpearl.transports.http_server.siblings import Siblings
    from mcpearl.transports.websocket.asgi import AsgiWebSockets

_WATCH_AFTER = 0.2  # seconds after which a request is watched
_LARGE = 4096  # bytes above which a body is weighed, and counted while it is worked on
_LAST_CALLS = 5.0  # seconds calls on a WebSocket have to finish, at the end


class Endpoint:
    """The ASGI application of one server; our own connections call `serve`.

    >>> asgi_app = app.asgi()

    Args:
        host: The server behind the endpoint.
        settings: The endpoint's options.
        gate: Finds the principal of each request; without one all are `host.anonymous`.
        lifespan: Entered while the endpoint runs.
        websockets: Serves WebSockets under an ASGI server.
        siblings: The other workers, if there are any.
        pages: What is answered beside MCP.
        relay: The way to other processes that serve the same sessions.
    """

    def __init__(
        self,
        host: EndpointHost,
        settings: EndpointSettings,
        *,
        gate: Gate | None = None,
        lifespan: Callable[[], Any] | None = None,
        websockets: "AsgiWebSockets | None" = None,
        siblings: "Siblings | None" = None,
        pages: Pages | None = None,
        relay: "ProcessRelay | None" = None,
    ) -> None:
        hosts, origins = settings.allowed_hosts, settings.allowed_origins
        self.host = host
        self.gate = gate
        self._settings = settings
        self._anonymous = host.anonymous
        self._location = ServedLocation(settings.path, hosts, origins)
        self._siblings = siblings
        self._relay = relay
        self._lifespan = lifespan
        self._life = AsgiLife(self._run)
        self._uncount: Callable[[], None] | None = None  # removes the endpoint's counters
        self.refusals = RefusedRequests()
        """Counts and logs what is refused."""
        self._websockets = websockets
        self._asgi_request = NotedAsgiRequest if settings.access_log else AsgiRequest
        self._asgi_heads = AsgiHeads()
        self._budget = host.budget
        callers = Callers(host.budget, host.anonymous)
        self._admission = Admission(settings.max_requests, settings.max_streams, callers)
        self._terms = Terms(
            host.limits.max_message,
            settings.body_timeout,
            host.limits.max_outgoing,
            settings.keep_alive,
            Pace(settings.keep_alive, settings.stall_timeout),
            LateWatch(_WATCH_AFTER),
            callers,
        )
        self._beside = BesideMcp(
            gate, pages, self._location, self._admission, self._terms, host.anonymous
        )
        self._sse_locations: dict[str, ServedLocation] = {}
        if settings.http_sse:
            self._sse_locations = {
                path: ServedLocation(path, hosts, origins) for path in sse_2024.PATHS
            }
        self._open()

    def _open(self) -> None:
        """Make what `close` ends. An ASGI application may be run again, on another event loop."""
        host, settings, siblings, relay = self.host, self._settings, self._siblings, self._relay
        max_outgoing, idle = host.limits.max_outgoing, settings.idle_timeout
        # An id that begins otherwise was made by another process.
        prefix = f"{clock.token(3)}." if siblings is None else siblings.prefix
        self._closed = False
        self._access: AccessLog | None = None
        if settings.access_log:
            self._access = access_log(self, settings.access_log)
        self._outlet = PostOutlet if self._access is None else self._access.outlet
        self.entrance: Serving = self._access or self
        """What serves requests: this endpoint, or its access log."""
        self._own_events = MemoryEventStore(settings.max_history, max_outgoing, budget=host.budget)
        events = self._own_events if settings.event_store is None else settings.event_store
        self._sessions = SessionTable(
            HttpSession,
            host.converse,
            StreamTerms(max_outgoing, events),
            max_sessions=settings.max_sessions,
            idle_timeout=idle,
            initialize_timeout=settings.initialize_timeout,
            # A store makes ids that every process can read.
            prefix=prefix if settings.session_store is None else "",
            store=settings.session_store,
            budget=host.budget,
        )
        self._reverse = None if relay is None else Reverse(relay, self._sessions)
        self._legacy = LegacyRequests(
            host, self._terms, self._admission, self._sessions, settings, self._reverse
        )
        self._sse: HttpSse | None = None
        if settings.http_sse:
            self._sse = HttpSse(host, self._terms, settings.max_sessions, idle, prefix, relay)
        self._solo: SoloConversation | None = None  # with all clients that have no session

    # ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request of an ASGI server."""
        if scope["type"] == "lifespan":
            await self._life.serve(receive, send)
            return
        if not self._life.up:
            await self._life.start_alone()
        if scope["type"] == "websocket" and self._websockets is not None:
            await self._websockets(scope, receive, send)
        elif scope["type"] == "http":
            head = self._asgi_heads.head_of(scope)
            request = self._asgi_request(scope, receive, send, head, self._terms.pace.stalls)
            with suppress(ClientLeft):  # it did not read its answer
                await _completed(self.entrance.serve(request))
        else:
            raise RuntimeError(f"an MCP endpoint answers HTTP, not {scope['type']}")

    # Any request

    # Most requests are answered without waiting for anything. So each step returns what is left to do
    # as a coroutine, or None, instead of being a coroutine around the next.

    def serve(self, request: Request) -> Work | None:
        """Answer one HTTP request, as `Serving.serve` does."""
        self._admission.open += 1
        rest: Work | None = None
        try:
            notes: HeadNotes | None = request.head.noted
            rest = self._meet(request) if notes is None else self._admit(request, notes)
        except Refused as refused:
            rest = self._refuse(request, refused)
        finally:
            if rest is None:
                self._leave(request)
        return None if rest is None else self._complete(request, rest)

    async def _complete(self, request: Request, rest: Work) -> None:
        try:
            await rest
        except Refused as refused:
            await self._refuse(request, refused)
        finally:
            self._leave(request)

    def _leave(self, request: Request) -> None:
        """Note that a request is over, however it ended."""
        self._admission.open -= 1
        waiter = request.waiter
        if waiter is not None:
            request.waiter = None
            waiter.close()

    async def _refuse(self, request: Request, refused: Refused) -> None:
        if refused.bound is not None:
            self.host.bounded(refused.bound, str(refused))
        self.refusals.note(request, refused)
        body = codec.encode_error(None, refused.error)
        await request.respond(refused.status, body, refused.headers)

    async def _meet(self, request: Request) -> None:
        """Serve a request whose head was not seen before."""
        if await self._beside.answer(request):
            return
        notes = self._look_at(request)
        if notes.is_preflight:
            request.extra = notes.cors
            await request.respond(204, b"", preflight(request.headers))
        else:
            request.head.noted = notes
            await _completed(self._admit(request, notes))

    def _admit(self, request: Request, notes: HeadNotes, principal: Any = None) -> Work | None:
        """Serve a request to MCP here, or at the worker that has its session, if there is room for it.

        `principal` is known after the gate was asked.
        """
        admission, gate = self._admission, self.gate
        if principal is None:
            if notes.cors:
                request.extra = notes.cors
            if admission.open > admission.max_requests:
                raise admission.too_many()
            principal = self._anonymous if gate is None else gate.known(request)
            if principal is None:
                return self._ask_gate(request, notes)
        if self._budget.pressed:
            admission.check_caller(principal, request)
        owner = None if self._siblings is None else self._owner(request)
        if owner is not None:
            return self._pass_on(owner, request, principal)
        serve = notes.serve
        return serve(request, notes, principal)

    async def _ask_gate(self, request: Request, notes: HeadNotes) -> None:
        assert self.gate is not None
        await _completed(self._admit(request, notes, await self.gate.admit(request)))

    def nodes(self) -> tuple[Node, ...]:
        """Return what looks after the sessions and streams."""
        more = () if self._sse is None else (self._sse.node(),)
        return (self._sessions.node(), *more, self._own_events.node())

    def receiver_of(self, id: str) -> Any:
        """Return the server's side of a session that is here; None for any other."""
        session = self._sessions.here(id)
        if session is not None:
            return session.receiver
        return None if self._sse is None else self._sse.receiver_of(id)

    def usage(self) -> dict[str, tuple[int, int]]:
        """Return how much of each bound is in use, and the bound."""
        return {
            "max_sessions": (len(self._sessions), self._settings.max_sessions),
            **self._admission.usage(),
        }

    def _look_at(self, request: Request) -> HeadNotes:
        """Check where a request goes and comes from."""
        headers, path = request.headers, request.path
        sse_location = self._sse_locations.get(path)
        (sse_location or self._location).check(path, headers, request.root)
        origin = headers.get(b"origin")
        serve: Serve = self._other if request.method != "POST" else self._post
        return HeadNotes(
            () if origin is None else readable_by(origin),
            request.method == "OPTIONS",
            serve if sse_location is None else self._serve_sse,
        )

    async def _other(self, request: Request, notes: HeadNotes, principal: Any) -> None:
        await self._legacy.other(request, principal)

    def _owner(self, request: Request) -> int | None:
        """Return the number of the other worker that has the session of a request."""
        assert self._siblings is not None
        if request.method not in ("POST", "GET", "DELETE"):
            return None  # refused here
        id = request.headers.get(b"mcp-session-id", b"").decode("latin-1")
        if self._sse is not None:
            id = id or sse_2024.session_of(request)
        return self._siblings.owner_of(id)

    async def _pass_on(self, owner: int, request: Request, principal: Any) -> None:
        assert self._siblings is not None
        outlet = PostOutlet(self._terms, request, principal)
        body = await outlet.read_body()
        request.extra = ()  # the owner adds the same headers
        with self._admission.as_stream() if request.method == "GET" else nullcontext():
            await self._siblings.pass_on(owner, request, body, self._terms.keep_alive)

    # POST

    def _post(self, request: Request, notes: HeadNotes, principal: Any) -> Work | None:
        """Serve a POST, whose body may still be arriving."""
        headers = notes.post
        if headers is None:
            headers = notes.post = read_post(request.headers)
        outlet, body = self._outlet(self._terms, request, principal), request.body
        if body is None or len(body) > _LARGE:
            return self._post_later(request, outlet, headers, principal)
        return self._post_whole(request, outlet, headers, body, principal)

    async def _post_later(
        self, request: Request, outlet: PostOutlet, headers: MessageHeaders, principal: Any
    ) -> None:
        body = await outlet.read_body()
        await _completed(self._post_whole(request, outlet, headers, body, principal))

    def _post_whole(
        self,
        request: Request,
        outlet: PostOutlet,
        headers: MessageHeaders,
        body: bytes,
        principal: Any,
    ) -> Work | None:
        try:
            message = codec.decode(body)
        except Malformed as error:
            if error.code == PARSE_ERROR:
                raise Refused(400, error.message, error.code) from None
            # A batch, or JSON that is not a message: the protocol answers.
            post = Post(self, request, outlet, headers, body, principal)
            return self._post_modern(post) if headers.says_modern else self._legacy.post(post)
        post = Post(self, request, outlet, headers, message, principal)
        in_session = headers.in_session and message.method not in MODERN_ONLY
        if in_session or not (headers.says_modern or headers.is_modern(message)):
            return self._legacy.post(post)
        if message.method not in NAMED_BY or message.id is UNSET:
            return self._post_modern(post)
        # Calls by name are compared with their headers once they are decoded.
        solo = self._solo or self._begin_solo()
        calls = solo.receive_from(principal, message, outlet)
        if calls:
            calls = post.checked(solo, calls, modern=True)
        else:
            mismatch = headers.mismatch_of(message)
            if mismatch is not None:
                post.refuse(mismatch)  # whatever else is wrong with it
        return outlet.serve(solo, calls, modern_status)

    def _begin_solo(self) -> SoloConversation:
        solo = self._solo = self.host.converse_alone()
        return solo

    def _post_modern(self, post: Post) -> Work | None:
        """Serve a modern message of a method that names nothing, or a body that is not a message."""
        solo, message = self._solo or self._begin_solo(), post.message
        if isinstance(message, Envelope):
            mismatch = post.headers.mismatch_of(message)
            if mismatch is not None:
                post.refuse(mismatch)
                return post.outlet.serve(solo, [], modern_status)
            if message.method == LISTEN:
                return self._listen(post, solo)
        calls = solo.receive_from(post.principal, message, post.outlet)
        if calls:
            calls = post.checked(solo, calls, modern=True)
        return post.outlet.serve(solo, calls, modern_status)

    async def _listen(self, post: Post, solo: SoloConversation) -> None:
        with self._admission.as_stream():
            calls = solo.receive_from(post.principal, post.message, post.outlet)
            await _completed(post.outlet.serve(solo, calls, modern_status))

    # HTTP+SSE

    async def _serve_sse(self, request: Request, notes: HeadNotes, principal: Any) -> None:
        """Serve a client of the transport of 2024-11-05."""
        assert self._sse is not None
        await self._sse.serve(request, principal, self._admission)

    # Life

    def lifespan(self, app: object = None) -> AbstractAsyncContextManager[None]:
        """Keep the server running while the application runs that this one is mounted in.

        >>> mcp = app.asgi()
        >>> api = FastAPI(lifespan=mcp.lifespan)
        >>> api.mount("/tools", mcp)  # MCP is at /tools/mcp

        Args:
            app: The outer application, which calls this; it is not used.
        """
        return self.running()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the server running, and end every stream and session at the end."""
        return self._life.held()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with nullcontext() if self._lifespan is None else self._lifespan():
            if self._closed:
                self._open()
            if self._uncount is None:
                self._uncount = self.host.add_counters(self._counters)
            try:
                yield
            finally:
                if not self._life.up:  # several applications may keep it running
                    self._uncount()
                    self._uncount = None
                    await self.close()

    def _counters(self) -> dict[str, int]:
        return {**self._admission.counters(), **self.refusals.counters()}

    def end_streams(self) -> None:
        """End, in an orderly way, the streams that would stay open forever; calls continue."""
        self._beside.end_streams()
        if self._solo is not None:
            self._solo.end_listeners()
        for session in self._sessions.all():
            session.end_standing()
        if self._sse is not None:
            self._sse.end_streams()

    async def close(self) -> None:
        """End every stream and session in an orderly way."""
        self._closed = True
        if self._websockets is not None:
            await self._websockets.drain(_LAST_CALLS)
        self.end_streams()
        await asyncio.sleep(0)
        self._sessions.close()
        if self._reverse is not None:
            self._reverse.close()
        await self._own_events.close()
        if self._sse is not None:
            self._sse.close()
        if self._siblings is not None:
            self._siblings.close()
        if self._solo is not None:
            self._solo.lost(None)
        if self._access is not None:
            self._access.close()
        self._terms.lingering.stop()
        self._terms.pace.stop()


async def _completed(rest: Work | None) -> None:
    """Do what is left of a request, if anything is."""
    if rest is not None:
        await rest
