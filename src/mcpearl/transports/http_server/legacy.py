"""Requests of the versions with sessions: their POSTs, the standing stream of GET, the end by DELETE."""

from typing import TYPE_CHECKING, Any, NoReturn

from mcpearl.net.http_server.request import EVENTS, HeaderMap, Request
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.versions import VERSIONS, Version
from mcpearl.transports.http_server.admission import Admission
from mcpearl.transports.http_server.checks import check_accept
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.header_check import MessageHeaders
from mcpearl.transports.http_server.post import Terms
from mcpearl.transports.http_server.responses import respond_stream, watched
from mcpearl.transports.http_server.sessions import HttpSession, Sessions, SessionsFull
from mcpearl.transports.http_server.status import legacy_status, modern_status
from mcpearl.transports.null import NullTransport

if TYPE_CHECKING:
    from mcpearl.transports.http_server.endpoint import Host, Post

ALLOW = ((b"allow", b"GET, POST, DELETE, OPTIONS"),)
_POST_ONLY = ((b"allow", b"POST, OPTIONS"),)


class LegacyRequests:
    """Answers legacy requests, in sessions or, if `stateless`, without."""

    def __init__(
        self,
        host: "Host",
        terms: Terms,
        admission: Admission,
        sessions: Sessions[HttpSession],
        stateless: bool,
    ) -> None:
        self._host = host
        self._terms = terms
        self._admission = admission
        self._sessions = sessions
        self._stateless = stateless

    # POST

    async def post(self, post: "Post") -> None:
        """Serve a message of a session, or begin one."""
        if self._stateless:
            await self._post_alone(post)
            return
        outlet, message, headers = post.outlet, post.message, post.headers
        version = headers.legacy_version or _unsupported(headers.version)
        begins = headers.session is None and _initializes(message)
        session = (
            self._begin(post.principal) if begins else self._find(headers.session, post.principal)
        )
        outlet.belong(session.new_stream, version.primes_streams)
        session.enter()
        try:
            conversation = session.receiver
            calls = conversation.receive(message, outlet)
            if begins:
                if outlet.refused:
                    self._sessions.remove(session)
                else:
                    outlet.headers = ((b"mcp-session-id", session.id.encode()),)
            status = legacy_status
            if calls:
                calls = post.checked(conversation, calls, modern=False)
                if not calls:
                    status = modern_status  # of a modern call, with the headers of a session
            await outlet.serve(conversation, calls, status)
        finally:
            session.leave()

    async def _post_alone(self, post: "Post") -> None:
        """Serve a message without keeping a session."""
        version = post.headers.legacy_version or _unsupported(post.headers.version)
        conversation = self._host.converse(NullTransport(), post.principal)
        try:
            if not _initializes(post.message):
                conversation.speak(version.name)
            calls = conversation.receive(post.message, post.outlet)
            if calls:
                calls = post.checked(conversation, calls, modern=False)
            await post.outlet.serve(conversation, calls, legacy_status)
        finally:
            conversation.lost(None)

    def _begin(self, principal: Any) -> HttpSession:
        try:
            session = self._sessions.create(principal)
        except SessionsFull:
            raise busy("Too many sessions", 10) from None
        session.attach(self._host.converse(session, principal))
        return session

    def _find(self, id: str | None, principal: Any) -> HttpSession:
        if id is None:
            raise Refused(400, "Mcp-Session-Id header is missing; begin with `initialize`")
        session = self._sessions.find(id, principal)
        if session is None:
            raise Refused(404, "There is no such session; begin a new one with `initialize`")
        return session

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
        headers = request.headers
        version = self._version(headers)
        check_accept(headers, EVENTS)
        session = self._find(_session_id(headers), principal)
        last = headers.get(b"last-event-id")
        if last is None:
            stream = session.another_standing()
            if version.primes_streams:
                stream.prime()
            reader = stream.reader(stream.unread_from())
        else:
            found = session.find(last.decode("latin-1"))
            if found is None:
                raise Refused(400, "Last-Event-ID does not name an event that is still kept")
            reader = found[0].reader(found[1])
        try:
            left = self._host.time_left(principal)
            with self._admission.as_stream(), watched(request, left) as gone:
                await respond_stream(request, reader, gone, self._terms.pace)
        finally:
            reader.close()

    async def _delete(self, request: Request, principal: Any) -> None:
        """End a session."""
        self._version(request.headers)
        self._sessions.remove(self._find(_session_id(request.headers), principal))
        await request.respond(204, b"")

    def _version(self, headers: HeaderMap) -> Version:
        """Return the version of a request that only sessions have."""
        message = MessageHeaders(headers)
        if message.says_modern:
            raise Refused(405, "This version has POST only, and no sessions", headers=_POST_ONLY)
        if self._stateless:
            raise Refused(405, "This endpoint keeps no sessions", headers=_POST_ONLY)
        return message.legacy_version or _unsupported(message.version)


def _session_id(headers: HeaderMap) -> str | None:
    id = headers.get(b"mcp-session-id")
    return None if id is None else id.decode("latin-1")


def _unsupported(name: str | None) -> NoReturn:
    supported = ", ".join(VERSIONS)
    raise Refused(400, f"Unsupported protocol version {name!r:.66}; there is {supported}")


def _initializes(message: Envelope | bytes) -> bool:
    return isinstance(message, Envelope) and message.method == "initialize"
