"""Streamable HTTP, the server's side: one ASGI endpoint for every version at once.

What is checked of a request before its message is looked at, which status an answer travels with,
and when an answer becomes a stream is decided here, straight on ASGI. The messages themselves are
the protocol's affair.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mcpearl.protocol import codec
from mcpearl.protocol.errors import Malformed
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.versions import MODERN_VERSIONS, UNNAMED, VERSIONS, Version
from mcpearl.transports.http_gate import Gate, Refused, Scope
from mcpearl.transports.http_mirror import Peek, is_modern, mismatch_of, read_peek
from mcpearl.transports.http_origin import Place, gathered
from mcpearl.transports.http_session import HttpSession, Sessions, SessionsFull
from mcpearl.transports.http_stream import Exchange, Reader, Stream
from mcpearl.transports.sse import KEEP_ALIVE
from mcpearl.types.jsonrpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
)

logger = logging.getLogger("mcpearl.http")

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_JSON = b"application/json"
_EVENTS = b"text/event-stream"
_STALLED = 60.0  # seconds a client may take nothing of its stream
_WATCH_AFTER = 0.2  # seconds a call may take before a disconnect is looked for
_NOTHING: dict[str, Any] = {"type": "http.response.body", "body": b""}


class Conversation(Protocol):
    """What an endpoint needs of a connection of the server."""

    def receive(self, message: bytes, outlet: Exchange) -> bool:
        """Take one message; whether an answer to it will come."""
        ...

    def speak(self, version: str) -> None:
        """Take the session as initialized in this version."""
        ...

    def end_listeners(self) -> None:
        """End every subscription in order, with its result."""
        ...

    def lost(self, reason: Exception | None) -> None:
        """Release everything: the client is gone."""
        ...


class Host(Protocol):
    """What an endpoint needs of the server."""

    limits: Limits

    def converse(self, transport: Any, principal: Any) -> Conversation:
        """Make the server's side of one client."""
        ...

    def tool_headers(self, name: str, arguments: bytes) -> list[tuple[str, str | None]]:
        """The headers a call of this tool must have; None for one it must not have."""
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
        max_requests: int = 10_000,
        body_timeout: float = 30.0,
        keep_alive: float = 15.0,
        gate: Gate | None = None,
        lifespan: Callable[[], Any] | None = None,
    ) -> None:
        self._host = host
        self._limits = host.limits
        self._place = Place(path, allowed_hosts, allowed_origins)
        self._stateless = stateless
        self._sessions = Sessions(host.limits, max_sessions, idle_timeout)
        self._max_requests = max_requests
        self._body_timeout = body_timeout
        self._keep_alive = keep_alive
        self._gate = gate
        self._lifespan = lifespan
        self._open = 0  # requests being answered
        self._live: set[Conversation] = set()  # modern conversations under way

    # ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"an MCP endpoint answers HTTP, not {scope['type']}")
        headers = gathered(scope["headers"])
        self._open += 1
        try:
            document = None if self._gate is None else self._gate.document(scope)
            if document is not None:
                await _respond(send, 200, document, _PUBLIC)
                return
            self._place.check(scope["path"].removeprefix(scope.get("root_path", "")), headers)
            if b"origin" in headers:
                send = _for_origin(headers[b"origin"], send)
            await self._respond(scope, headers, receive, send)
        except Refused as refused:
            body = codec.encode_error(None, refused.error)
            await _respond(send, refused.status, body, refused.headers)
        finally:
            self._open -= 1

    async def _respond(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        if scope["method"] == "OPTIONS":
            await _respond(send, 204, b"", _preflight(headers))
            return
        if self._open > self._max_requests:
            raise Refused(
                503, "Too many requests at once", INTERNAL_ERROR, ((b"retry-after", b"1"),)
            )
        principal = None
        if self._gate is not None:
            principal = self._gate.known(scope, headers) or await self._gate.admit(scope, headers)
        match scope["method"]:
            case "POST":
                await self._post(headers, principal, receive, send)
            case "GET":
                await self._get(headers, principal, receive, send)
            case "DELETE":
                await self._delete(headers, principal, send)
            case other:
                raise Refused(405, f"{other} is not a method of this endpoint", headers=_ALLOW)

    # POST

    async def _post(
        self, headers: dict[bytes, bytes], principal: Any, receive: Receive, send: Send
    ) -> None:
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != _JSON:
            raise Refused(415, "Content-Type must be application/json")
        _check_accept(headers, _JSON, _EVENTS)
        body = await self._read_body(headers, receive)
        try:
            peek = read_peek(body)
        except codec.UNREADABLE:
            _refuse_unreadable(body)
            peek = Peek()  # a batch, or no message: the protocol says what is wrong with it
        if is_modern(peek, headers):
            await self._post_modern(body, peek, headers, principal, receive, send)
        elif self._stateless:
            await self._post_stateless(body, peek, headers, principal, receive, send)
        else:
            await self._post_session(body, peek, headers, principal, receive, send)

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        limit = self._limits.max_message
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(self._body_timeout):
                return await _read_parts(receive, limit)
        except TimeoutError:
            raise Refused(408, "The body did not arrive in time", headers=_CLOSE) from None

    async def _post_modern(
        self,
        body: bytes,
        peek: Peek,
        headers: dict[bytes, bytes],
        principal: Any,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve a request that stands for itself."""
        mismatch = mismatch_of(peek, headers, self._host.tool_headers)
        if mismatch is not None:
            id = None if peek.id is UNSET else peek.id
            await _respond(send, 400, codec.encode_error(id, mismatch))
            return
        conversation = self._host.converse(_Nowhere(), principal)
        await self._serve_alone(conversation, body, receive, send, _modern_status)

    async def _post_stateless(
        self,
        body: bytes,
        peek: Peek,
        headers: dict[bytes, bytes],
        principal: Any,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve a legacy request without keeping a session."""
        version = self._legacy_version(headers)
        conversation = self._host.converse(_Nowhere(), principal)
        if peek.method != "initialize":
            conversation.speak(version.name)
        await self._serve_alone(conversation, body, receive, send, _legacy_status)

    async def _serve_alone(
        self,
        conversation: Conversation,
        body: bytes,
        receive: Receive,
        send: Send,
        status: Callable[[Exchange], int],
    ) -> None:
        """Serve one message of which nothing outlives the answer."""
        exchange = Exchange(Stream(None, self._limits.max_outgoing))
        self._live.add(conversation)
        try:
            if conversation.receive(body, exchange):
                await self._answer(exchange, receive, send, (), status)
            else:
                await _respond(send, 202, b"")
        finally:
            # Also when the client left: without a session that is how a call is cancelled.
            self._live.discard(conversation)
            conversation.lost(None)

    def _legacy_version(self, headers: dict[bytes, bytes]) -> Version:
        given = headers.get(b"mcp-protocol-version")
        if given is None:
            return UNNAMED
        name = given.decode("latin-1")
        if name not in VERSIONS:
            supported = ", ".join(VERSIONS)
            raise Refused(400, f"Unsupported protocol version {name[:64]!r}; there is {supported}")
        return VERSIONS[name]

    async def _post_session(
        self,
        body: bytes,
        peek: Peek,
        headers: dict[bytes, bytes],
        principal: Any,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve a message of a session, or begin one."""
        version = self._legacy_version(headers)
        begins = peek.method == "initialize" and b"mcp-session-id" not in headers
        if begins:
            try:
                session = self._sessions.create(principal)
            except SessionsFull:
                raise Refused(
                    503, "Too many sessions", INTERNAL_ERROR, ((b"retry-after", b"10"),)
                ) from None
            await session.open(self._host.converse(session, principal))  # type: ignore[arg-type]
        else:
            session = self._session(headers, principal)
        id = None if peek.id is UNSET else peek.id
        with session.exchange(id, version.primes_streams) as exchange:
            if not session.receiver.receive(body, exchange):
                if peek.method == "notifications/cancelled":
                    session.end_cancelled()
                await _respond(send, 202, b"")
                return
            extra: tuple[tuple[bytes, bytes], ...] = ()
            if begins:
                await exchange.settled
                if exchange.refused:
                    self._sessions.remove(session)
                else:
                    extra = ((b"mcp-session-id", session.id.encode()),)
            await self._answer(exchange, receive, send, extra, _legacy_status, session)

    def _session(self, headers: dict[bytes, bytes], principal: Any) -> HttpSession:
        id = headers.get(b"mcp-session-id")
        if id is None:
            raise Refused(400, "Mcp-Session-Id header is missing; begin with `initialize`")
        session = self._sessions.find(id.decode("latin-1"), principal)
        if session is None:
            raise Refused(404, "There is no such session; begin a new one with `initialize`")
        return session

    # Answering

    async def _answer(
        self,
        exchange: Exchange,
        receive: Receive,
        send: Send,
        extra: tuple[tuple[bytes, bytes], ...],
        status: Callable[[Exchange], int],
        session: HttpSession | None = None,
    ) -> None:
        """Wait for the answer, or for it to become a stream, and send it."""
        if not exchange.settled.done():
            await self._wait(exchange, receive)
        if exchange.settled.cancelled():
            return  # the client left; nobody reads an answer
        if exchange.answer is not None:
            await _respond(send, status(exchange), exchange.answer, extra)
            return
        if session is not None:
            session.keep(exchange.stream)
        await self._stream(exchange.stream.reader(0), receive, send, extra)

    async def _wait(self, exchange: Exchange, receive: Receive) -> None:
        """Wait until it is known what the answer will be: plain, a stream, or wanted by nobody."""
        loop = asyncio.get_running_loop()
        watch: list[asyncio.Task[None]] = []
        # Most calls are done before anybody could have left; only the others are worth watching.
        timer = loop.call_later(_WATCH_AFTER, self._start_watch, watch, receive, exchange)
        try:
            await asyncio.wait((exchange.settled,))
        finally:
            timer.cancel()
            for task in watch:
                task.cancel()

    def _start_watch(
        self, watch: list["asyncio.Task[None]"], receive: Receive, exchange: Exchange
    ) -> None:
        watch.append(asyncio.get_running_loop().create_task(self._watch(receive, exchange)))

    async def _watch(self, receive: Receive, exchange: Exchange) -> None:
        """Note when the client of a long call leaves; show it signs of life if it does not."""
        try:
            async with asyncio.timeout(self._keep_alive):
                await _disconnected(receive)
        except TimeoutError:
            exchange.open_stream()
        else:
            if not exchange.settled.done():
                exchange.settled.cancel()

    async def _stream(
        self,
        reader: Reader,
        receive: Receive,
        send: Send,
        extra: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        """Write a stream as it comes, until it ends or the client leaves."""
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [*_STREAM_HEADERS, *extra],
        }
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await send(start)
            while not gone.done():
                chunk = reader.take()
                if chunk:
                    await _send_part(send, chunk)
                if reader.has_news:
                    continue
                if reader.finished:
                    await send(_NOTHING)
                    return
                if not await self._news(reader, gone):
                    await _send_part(send, KEEP_ALIVE)
        except TimeoutError:
            logger.warning("a client that does not read its stream was dropped")
        finally:
            gone.cancel()
            reader.close()

    async def _news(self, reader: Reader, gone: "asyncio.Future[None]") -> bool:
        """Wait for news or the end; False when it is time for a sign of life."""
        news = asyncio.ensure_future(reader.wait(self._keep_alive))
        try:
            await asyncio.wait((news, gone), return_when=asyncio.FIRST_COMPLETED)
            return not news.done() or news.result()
        finally:
            news.cancel()

    # GET and DELETE

    async def _get(
        self, headers: dict[bytes, bytes], principal: Any, receive: Receive, send: Send
    ) -> None:
        """Open the standing stream of a session, or go on with a broken one."""
        if headers.get(b"mcp-protocol-version", b"").decode("latin-1") in MODERN_VERSIONS:
            raise Refused(405, "There is no GET in this version", headers=_POST_ONLY)
        if self._stateless:
            raise Refused(405, "This endpoint keeps no sessions", headers=_POST_ONLY)
        version = self._legacy_version(headers)
        _check_accept(headers, _EVENTS)
        session = self._session(headers, principal)
        last = headers.get(b"last-event-id")
        if last is None:
            stream = session.standing()
            if version.primes_streams:
                stream.prime()
            reader = stream.reader(stream.unread_from())
        else:
            found = session.find(last.decode("latin-1"))
            if found is None:
                raise Refused(400, "Last-Event-ID names no event that is still kept")
            reader = found[0].reader(found[1])
        await self._stream(reader, receive, send)

    async def _delete(self, headers: dict[bytes, bytes], principal: Any, send: Send) -> None:
        """End a session at its client's wish."""
        if headers.get(b"mcp-protocol-version", b"").decode("latin-1") in MODERN_VERSIONS:
            raise Refused(405, "There are no sessions in this version", headers=_POST_ONLY)
        if self._stateless:
            raise Refused(405, "This endpoint keeps no sessions", headers=_POST_ONLY)
        self._legacy_version(headers)
        self._sessions.remove(self._session(headers, principal))
        await _respond(send, 204, b"")

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
    async def running(self) -> AsyncIterator["Endpoint"]:
        """Hold the server up, for an application this one is mounted in.

        >>> asgi_app = app.asgi()
        >>> Starlette(routes=[Mount("/", asgi_app)], lifespan=lambda _: asgi_app.running())
        """
        async with nullcontext() if self._lifespan is None else self._lifespan():
            try:
                yield self
            finally:
                await self.close()

    def end_streams(self) -> None:
        """End in order what would stay open for ever; calls go on."""
        for conversation in list(self._live):
            conversation.end_listeners()
        for session in self._sessions.all():
            session.end_standing()

    async def close(self) -> None:
        """End every stream and session in order."""
        self.end_streams()
        await asyncio.sleep(0)
        self._sessions.close()


class _Nowhere:
    """The transport of a request that stands for itself: there is nothing beside its answer."""

    async def open(self, receiver: Any) -> None:
        pass

    def send(self, message: bytes) -> None:
        pass

    def flush(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    async def close(self) -> None:
        pass


_PUBLIC = ((b"access-control-allow-origin", b"*"),)
_ALLOW = ((b"allow", b"GET, POST, DELETE, OPTIONS"),)
_POST_ONLY = ((b"allow", b"POST, OPTIONS"),)
_CLOSE = ((b"connection", b"close"),)
_STREAM_HEADERS = (
    (b"content-type", _EVENTS),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def _for_origin(origin: bytes, send: Send) -> Send:
    """Let the page that asks, and was found welcome, read the response."""

    async def respond(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            event["headers"] += (
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", b"mcp-session-id, mcp-protocol-version"),
                (b"vary", b"origin"),
            )
        await send(event)

    return respond


def _refuse_unreadable(body: bytes) -> None:
    try:
        codec.decode(body)
    except Malformed as error:
        if error.code == PARSE_ERROR:
            raise Refused(400, error.message, error.code) from None


async def _read_parts(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Refused(400, "The client left before its body was complete")
        part = event.get("body", b"")
        more = event.get("more_body", False)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_accept(headers: dict[bytes, bytes], *kinds: bytes) -> None:
    accepted = headers.get(b"accept", b"*/*").lower()
    if b"*/*" in accepted:
        return
    missing = [kind.decode() for kind in kinds if kind not in accepted]
    if missing:
        raise Refused(406, f"Accept must list {' and '.join(missing)}")


def _too_large(limit: int) -> Refused:
    return Refused(413, f"The body is over the limit of {limit} bytes")


class _Code(Struct):
    error: "_CodeOnly | UnsetType" = UNSET


class _CodeOnly(Struct):
    code: int


_read_code = msgspec.json.Decoder(_Code).decode


def _modern_status(exchange: Exchange) -> int:
    """The status of a plain answer: errors of the request itself are the request's errors."""
    answer = exchange.answer or b""
    if not exchange.refused and b'"error":' not in answer[:256]:
        return 200
    try:
        error = _read_code(answer).error
    except msgspec.DecodeError:
        return 200
    if error is UNSET:
        return 200
    if error.code == METHOD_NOT_FOUND:
        return 404
    if exchange.refused or -32099 <= error.code <= -32020:
        return 400
    return 200


def _legacy_status(exchange: Exchange) -> int:
    """Legacy answers are 200 whatever they say, except to what was no message at all."""
    answer = exchange.answer or b""
    return 400 if exchange.refused and answer.startswith(b'{"jsonrpc":"2.0","id":null') else 200


async def _respond(
    send: Send, status: int, body: bytes, extra: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    headers = [*extra]
    if status != 204:
        headers.append((b"content-length", b"%d" % len(body)))
    if body:
        headers.append((b"content-type", _JSON))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_part(send: Send, chunk: bytes) -> None:
    async with asyncio.timeout(_STALLED):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _preflight(headers: dict[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
    asked = headers.get(b"access-control-request-headers", b"*")
    return (
        (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
        (b"access-control-allow-headers", asked),
        (b"access-control-max-age", b"600"),
    )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
