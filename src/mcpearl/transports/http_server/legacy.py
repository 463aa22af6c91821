"""Requests of the versions with sessions: POST for messages, GET for streams, DELETE for the end."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import UNSET

from mcpearl.net.http_server.request import EVENTS, HeaderMap, Request, Work
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.versions import VERSIONS, Version
from mcpearl.stores.errors import RETRY_AFTER, TOLD, StoreUnavailable
from mcpearl.transports.http_server.admission import Admission
from mcpearl.transports.http_server.checks import check_accept
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.header_check import MessageHeaders
from mcpearl.transports.http_server.host import EndpointHost
from mcpearl.transports.http_server.post import PostOutlet, Terms
from mcpearl.transports.http_server.responses import respond_stream, watched
from mcpearl.transports.http_server.reverse import Reverse
from mcpearl.transports.http_server.session_table import SessionTable
from mcpearl.transports.http_server.sessions import HttpSession, Stage
from mcpearl.transports.http_server.settings import EndpointSettings
from mcpearl.transports.http_server.status import legacy_status, modern_status
from mcpearl.transports.null import NullTransport

if TYPE_CHECKING:
    from mcpearl.transports.http_server.admitted_post import Post

ALLOW = ((b"allow", b"GET, POST, DELETE, OPTIONS"),)
_CHANGES_SESSION = frozenset(
    {
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)
_POST_ONLY = ((b"allow", b"POST, OPTIONS"),)


class LegacyRequests:
    """Answers legacy requests, in sessions or, if `stateless`, without."""

    def __init__(
        self,
        host: EndpointHost,
        terms: Terms,
        admission: Admission,
        sessions: SessionTable[HttpSession],
        settings: EndpointSettings,
        reverse: Reverse | None = None,
    ) -> None:
        self._host = host
        self._terms = terms
        self._admission = admission
        self._sessions = sessions
        self._stateless = settings.stateless
        self._keeps_records = settings.session_store is not None
        self._reverse = reverse

    # POST

    def post(self, post: "Post") -> Work | None:
        """Serve a message of a session, or begin one. Return a coroutine for what is left to do."""
        if self._stateless:
            return self._post_alone(post)
        headers = post.headers
        version = headers.legacy_version or _unsupported(headers.version)
        if headers.session is not None:
            session = self._sessions.find(headers.session, post.principal)
            if session is None or (self._keeps_records and _may_be_behind(session, post.message)):
                return self._post_elsewhere(post, headers.session, version)
            return self._post_in(session, post, version)
        if not _initializes(post.message):
            _missing()
        caller = self._terms.callers.key_of(post.principal, post.request)
        return self._post_in(self._sessions.create(post.principal, caller), post, version)

    async def _post_elsewhere(self, post: "Post", id: str, version: Version) -> None:
        """Serve a message of a session this process does not have yet."""
        session = await self._restored(id, post.principal, post.request)
        rest = self._post_in(session, post, version)
        if rest is not None:
            await rest

    def _post_in(self, session: HttpSession, post: "Post", version: Version) -> Work | None:
        outlet, message = post.outlet, post.message
        session.open += 1
        outlet.belong(session, self._sessions, version.primes_streams)
        conversation = session.receiver
        if self._reverse is not None and session.id:
            is_ours, passing = self._reverse.passing(session, message)
            outlet.before_answer = passing
            if not is_ours:
                return outlet.serve(conversation, [], legacy_status)
        calls = conversation.receive(message, outlet)
        is_stored = not self._keeps_records
        if not session.id:
            self._begin(session, outlet)
            is_stored = is_stored or self._sessions.has_saved(session)
        status = legacy_status
        if calls and (post.endpoint.gate is not None or calls[0].caller.version.modern):
            calls = post.checked(conversation, calls, modern=False)
            if not calls:
                status = modern_status  # of a modern call, with the headers of a session
        if not is_stored and not outlet.refused and _may_change(message):
            outlet.before_answer = partial(self._save, session, outlet.before_answer)
        return outlet.serve(conversation, calls, status)

    async def _save(
        self, session: HttpSession, before: Callable[[], Awaitable[None]] | None
    ) -> None:
        """Store what changed in a session, after what else has to be done before the answer."""
        if before is not None:
            await before()
        await self._sessions.save(session)

    def _begin(self, session: HttpSession, outlet: PostOutlet) -> None:
        """Let a session be found from now on, unless `initialize` was refused."""
        if outlet.refused:
            session.end()
            return
        if not self._sessions.add(session):
            outlet.before_answer = partial(self._sessions.admit, session)
        outlet.headers = ((b"mcp-session-id", session.id.encode()),)

    async def _post_alone(self, post: "Post") -> None:
        """Serve a message without keeping a session."""
        version = post.headers.legacy_version or _unsupported(post.headers.version)
        account = self._terms.callers.account_of(post.principal, post.request)
        conversation = self._host.converse(NullTransport(), post.principal, account)
        try:
            if not _initializes(post.message):
                conversation.speak(version.name)
            calls = conversation.receive(post.message, post.outlet)
            if calls:
                calls = post.checked(conversation, calls, modern=False)
            rest = post.outlet.serve(conversation, calls, legacy_status)
            if rest is not None:
                await rest
        finally:
            conversation.lost(None)

    async def _restored(self, id: str, principal: Any, request: Request) -> HttpSession:
        """Return a session this process does not have yet, or refuse the request."""
        caller = self._terms.callers.key_of(principal, request)
        session = await self._sessions.restore(id, principal, caller)
        if session is None:
            raise self._sessions.gone(id)
        return session

    async def _session(self, request: Request, principal: Any) -> HttpSession:
        id = request.headers.get(b"mcp-session-id")
        name = _missing() if id is None else id.decode("latin-1")
        found = self._sessions.find(name, principal)
        if found is None or (self._keeps_records and found.stage is Stage.OPENING):
            return await self._restored(name, principal, request)
        return found

    # GET and DELETE

    async def other(self, request: Request, principal: Any) -> None:
        """Answer a request that is not a POST."""
        match request.method:
            case "GET":
                await self._get(request, principal)
            case "DELETE":
                await self._delete(request, principal)
            case method:
                reason = f"{method} is not a method of this endpoint"
                raise Refused(405, reason, headers=ALLOW)

    async def _get(self, request: Request, principal: Any) -> None:
        """Open the standing stream of a session, or resume a stream."""
        version = self._version(request.headers)
        check_accept(request.headers, EVENTS)
        session = await self._session(request, principal)
        session.open += 1
        try:
            with self._admission.as_stream():
                await self._listen(request, session, version)
        finally:
            self._sessions.leave(session)

    async def _listen(self, request: Request, session: HttpSession, version: Version) -> None:
        last = request.headers.get(b"last-event-id")
        try:
            if last is None:
                reader = await session.listen(version.primes_streams)
            else:
                reader = await session.listen_after(last.decode("latin-1"))
        except StoreUnavailable:
            raise busy(f"The stream cannot be opened: {TOLD}", RETRY_AFTER) from None
        try:
            with watched(request, self._host.time_left(session.principal)) as gone:
                await respond_stream(request, reader, gone, self._terms.pace)
        finally:
            reader.close()

    async def _delete(self, request: Request, principal: Any) -> None:
        """End a session."""
        self._version(request.headers)
        await self._sessions.delete(await self._session(request, principal))
        await request.respond(204, b"")

    def _version(self, headers: HeaderMap) -> Version:
        """Return the version of a GET or DELETE, which only sessions have."""
        message = MessageHeaders(headers)
        if message.says_modern:
            raise Refused(405, "This version has POST only, and no sessions", headers=_POST_ONLY)
        if self._stateless:
            raise Refused(405, "This endpoint keeps no sessions", headers=_POST_ONLY)
        return message.legacy_version or _unsupported(message.version)


def _missing() -> NoReturn:
    raise Refused(400, "Mcp-Session-Id header is missing; begin with `initialize`")


def _unsupported(name: str | None) -> NoReturn:
    supported = ", ".join(VERSIONS)
    raise Refused(400, f"Unsupported protocol version {name!r:.66}; supported are {supported}")


def _initializes(message: Envelope | bytes) -> bool:
    """Whether a message is an `initialize` request; as a notification it begins nothing."""
    if not isinstance(message, Envelope) or message.id is UNSET:
        return False
    return message.method == "initialize"


def _may_be_behind(session: HttpSession, message: Envelope | bytes) -> bool:
    """Whether another process may know that the client is ready, and this one not yet."""
    if session.stage is not Stage.OPENING:
        return False
    return not isinstance(message, Envelope) or message.method != "notifications/initialized"


def _may_change(message: Envelope | bytes) -> bool:
    """Whether a message may change what is stored of its session; a batch may hold anything."""
    return not isinstance(message, Envelope) or message.method in _CHANGES_SESSION
