"""The client's end of Streamable HTTP, in both its shapes, and of HTTP+SSE before it.

Each message is a POST of its own; whatever comes back, as JSON or as events, is handed on as
messages, and whatever goes wrong is told to the one request it happened to. In the legacy era there
is also a session, a standing stream for what belongs to no request, and streams that break and are
resumed. In the modern era giving up a request closes its response, and nothing else is kept.
"""

import asyncio
import logging
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any

from msgspec import UNSET

from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.http_client.pool import ConnectionPool, tls_context
from mcpearl.net.sse import EventReader
from mcpearl.net.tls import Tls
from mcpearl.protocol.errors import (
    AuthorizationFailed,
    ConnectionLost,
    LimitReached,
    McpearlError,
    SessionLost,
)
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.modern import LISTEN
from mcpearl.protocol.versions import VERSIONS
from mcpearl.runtime.eager import spawn
from mcpearl.transports.http_client.authorizer import Authorizer
from mcpearl.transports.http_client.endpoint import (
    JSON,
    REDIRECTS,
    Oversized,
    RemoteEndpoint,
    SessionEnded,
    is_stream,
    kind_of,
)
from mcpearl.transports.http_client.event_streams import EventStreams
from mcpearl.transports.http_client.messages import (
    Outgoing,
    agreed_version,
    answers,
    connection_failure,
    error_in,
    http_failure,
    read_outgoing,
    shown,
)
from mcpearl.transports.mirrored_headers import SESSION_ID, ToolHeaders
from mcpearl.transports.transport import Receiver
from mcpearl.types.base import RequestId
from mcpearl.types.tools import Tool

logger = logging.getLogger("mcpearl.http")

_OLD_TRANSPORT = (400, 404, 405)  # how a server of HTTP+SSE may refuse a POST to its stream
_NOTICE_TIMEOUT = 30.0  # seconds until a notification counts as not taken
_FAREWELL = 2.0  # seconds for what was taken to leave, and again for the session to end


class HttpTransport:
    """A server at a URL.

    >>> transport = HttpTransport("https://example.com/mcp", Limits())

    `authorizer` gives what authorizes each request. `tls` says whom to trust and who to
    be; a context of one's own offers HTTP/2 if its ALPN does. `proxy` is an `http://` address; without
    it the environment is asked. `http2` is False to offer HTTP/1.1 alone, True for nothing but HTTP/2.
    """

    keeps_alive = True  # requests have their timeouts, and streams the system's own probes

    def __init__(
        self,
        url: str,
        limits: Limits,
        *,
        headers: Mapping[str, str] | None = None,
        authorizer: Authorizer | None = None,
        tls: Tls | ssl.SSLContext | None = None,
        proxy: str | None = None,
        http2: bool | None = None,
        connect_timeout: float = 10.0,
        reconnect_delay: float = 1.0,
        max_exchanges: int = 256,
    ) -> None:
        self._max_message = limits.max_message
        context = tls_context(tls, http2) if url.startswith("https:") else None
        wire = ConnectionPool(
            url, tls=context, proxy=proxy, connect_timeout=connect_timeout, http2=http2 is True
        )
        self._link = RemoteEndpoint(url, wire, headers, authorizer)
        self._connect_timeout = connect_timeout
        self._streams = EventStreams(self._link, limits.max_message, reconnect_delay, self._hand_on)
        self._receiver: Receiver | None = None
        self._tools = ToolHeaders()
        self._modern = False  # whether the last request was
        self._starting: RequestId | None = None  # `initialize`, whose answer names the version
        self._exchanges: dict[RequestId, PostExchange] = {}  # requests that are not answered yet
        self._unsent: set[PostExchange] = set()  # of these, those notifications wait for
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()  # of these, the ones closing waits for
        self._last_notice: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None  # `notifications/initialized`, on its way
        self._slots = asyncio.Semaphore(max_exchanges)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._retiring: asyncio.Task[None] | None = None  # while a session the server ended goes
        self._not_run: dict[RequestId, str] = {}  # requests it did not take, and why
        self._closing = False
        self._finished = False

    async def open(self, receiver: Receiver) -> None:
        """Connect, to know that somebody is there; the connection is kept for the first message."""
        try:
            await self._link.wire.reach()
        except ExchangeFailed as error:
            raise ConnectionLost(error.reason) from None
        self._receiver = receiver

    # Sending

    def send(self, message: bytes) -> None:
        """Take one message: its exchange begins now and is nobody else's."""
        if self._is_over or self._receiver is None:
            return
        outgoing = read_outgoing(message)
        if outgoing.version is not None:
            self._link.version, self._modern = outgoing.version, True
        elif outgoing.method == "initialize":
            self._link.version, self._modern = None, False
            self._starting = None if outgoing.id is UNSET else outgoing.id
        cancelled = outgoing.cancels
        exchange = None if cancelled is None else self._exchanges.get(cancelled)
        if exchange is not None and (exchange.modern or not exchange.has_left):
            exchange.give_up()  # closing the response tells a modern server; before, nobody knows
            return
        if cancelled is not None and exchange is None and self._modern:
            return
        self._begin(PostExchange(outgoing, message, exchange))

    @property
    def _is_over(self) -> bool:
        return self._closing or self._finished

    def _begin(self, exchange: "PostExchange") -> None:
        outgoing = exchange.outgoing
        if outgoing.is_request:
            assert outgoing.id is not UNSET
            if self._retiring is not None:
                self._not_run[outgoing.id] = "the server ended the session"
                return
            self._exchanges[outgoing.id] = exchange
            self._unsent.add(exchange)
            task = exchange.task = self._spawn(self._request(exchange, outgoing.id))
            task.add_done_callback(lambda _: self._over(exchange))
            return
        if outgoing.is_notification:
            work = self._notify(exchange, self._last_notice, list(self._unsent))
        else:
            work = self._deliver(exchange)
        task = exchange.task = self._spawn(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        if outgoing.is_notification:
            self._last_notice = task
        if exchange.starts_session:
            self._opening = task

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = spawn(asyncio.get_running_loop(), work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def flush(self) -> None:
        """Nothing waits here."""

    async def _request(self, exchange: "PostExchange", id: RequestId) -> None:
        """See one request to its end, whatever it is."""
        try:
            if self._opening is not None and not self._opening.done():
                await asyncio.wait([self._opening])
            if exchange.outgoing.method == LISTEN:  # it lasts; it must not take the place of calls
                await self._post(exchange)
            else:
                if self._slots.locked():
                    self._make_way(exchange)
                async with self._slots:
                    await self._post(exchange)
        except SessionEnded as error:
            self._not_run.update({} if error.sent else {id: error.reason})
            self._retire(error)
        except Oversized as error:
            self._fail(id, LimitReached(f"{error.reason}: see `Limits.max_message`"))
        except ExchangeFailed as error:
            self._fail(id, ConnectionLost(error.reason, maybe_executed=error.sent))
        except AuthorizationFailed as error:
            self._fail(id, error)
        except Exception as error:
            logger.exception("the exchange of %s failed", exchange.name)
            self._fail(id, ConnectionLost(f"the exchange failed: {error}", maybe_executed=True))

    def _over(self, exchange: "PostExchange") -> None:
        """Forget a request, also one that was given up before it began."""
        self._make_way(exchange)
        id = exchange.outgoing.id
        if id is not UNSET and self._exchanges.get(id) is exchange:
            del self._exchanges[id]

    async def _notify(
        self,
        exchange: "PostExchange",
        before: asyncio.Task[None] | None,
        unsent: "list[PostExchange]",
    ) -> None:
        """Send a notification after the one before it and after the requests before it."""
        if before is not None and not before.done():
            await asyncio.wait([before])
        for request in unsent:
            await request.out_of_the_way()
        await self._deliver(exchange)
        if exchange.gives_up is not None:
            exchange.gives_up.give_up()
        elif exchange.starts_session and self._link.endpoint is None and not self._is_over:
            self._spawn(self._stand())

    async def _deliver(self, exchange: "PostExchange") -> None:
        """Send what gets no answer."""
        try:
            async with asyncio.timeout(_NOTICE_TIMEOUT) as exchange.limit:
                await self._post(exchange)
        except SessionEnded as error:
            self._retire(error)
        except (ExchangeFailed, TimeoutError, AuthorizationFailed) as error:
            self._undelivered(exchange, _reason(error))
        except Exception as error:
            logger.exception("the exchange of %s failed", exchange.name)
            self._undelivered(exchange, str(error))

    def _undelivered(self, exchange: "PostExchange", reason: str) -> None:
        if exchange.starts_session:  # without it the server will take nothing else
            self._lose(ConnectionLost(f"the session could not be opened: {reason}"))
        else:
            logger.warning("%s was not delivered: %s", exchange.name, reason)

    def _sent(self, exchange: "PostExchange") -> None:
        exchange.has_left = True
        self._make_way(exchange)

    def _held(self, exchange: "PostExchange", holding: bool) -> None:
        """Stop the clock of a message that waits for authorization: nobody works on it."""
        exchange.has_left = False
        if exchange.limit is not None:
            now = asyncio.get_running_loop().time()
            exchange.limit.reschedule(None if holding else now + _NOTICE_TIMEOUT)
        held = getattr(self._receiver, "held", None)
        if held is not None and exchange.outgoing.is_request and not self._finished:
            held(exchange.outgoing.id, holding)

    def _make_way(self, exchange: "PostExchange") -> None:
        """Let later notifications pass: the request has left, never will, or waits for its turn."""
        self._unsent.discard(exchange)
        exchange.make_way()

    # One exchange

    async def _post(self, exchange: "PostExchange") -> None:
        connection = await self._link.post(
            exchange.message,
            exchange.outgoing.headers(self._tools),
            exchange.outgoing.version,
            lambda: self._sent(exchange),
            lambda holding: self._held(exchange, holding),
        )
        try:
            await self._answered(exchange, connection)
        finally:
            connection.release()

    async def _answered(self, exchange: "PostExchange", connection: HttpExchange) -> None:
        """Turn the answer of the server into messages."""
        status = connection.status
        id = exchange.outgoing.id if exchange.outgoing.is_request else UNSET
        if id is UNSET:
            if status >= 300:
                body = shown(await self._body(connection))
                logger.warning("%s was refused with HTTP status %d%s", exchange.name, status, body)
            return
        if self._link.endpoint is not None and 200 <= status < 300:
            return  # the answer comes on the stream
        if exchange.outgoing.method == "initialize" and status == 200:
            self._learn_session(connection)
        if is_stream(connection):
            await self._streams.until_answered(connection, id, resumable=not exchange.modern)
        elif status == 200 and kind_of(connection) == JSON:
            await self._read_json(id, connection)
        else:
            await self._refused(exchange, id, connection)

    def _learn_session(self, connection: HttpExchange) -> None:
        session = connection.headers.get(SESSION_ID.lower(), "")
        if session and all("!" <= character <= "~" for character in session):
            self._link.session = session

    async def _read_json(self, id: RequestId, connection: HttpExchange) -> None:
        body = await self._body(connection)
        if body[:1] != b"[" and not answers(body, id):
            problem = f"the server answered with what is no answer to the request{shown(body)}"
            body = http_failure(id, connection.status, problem, {})
        await self._hand_on([body])

    async def _refused(
        self, exchange: "PostExchange", id: RequestId, connection: HttpExchange
    ) -> None:
        status, headers = connection.status, connection.headers
        body = await self._body(connection)
        error = error_in(body, id) if status >= 400 else None
        may_be_old = exchange.outgoing.method == "initialize" and self._link.endpoint is None
        unsaid = error is None or status == 405  # without POST, whatever is said of it
        if unsaid and may_be_old and status in _OLD_TRANSPORT and await self._is_old():
            await self._post(exchange)
            return
        problem = _problem(status, headers) + shown(body)
        await self._hand_on([error or http_failure(id, status, problem, headers)])

    async def _body(self, connection: HttpExchange) -> bytes:
        """Read a whole body, within the bound."""
        parts: list[bytes] = []
        size = 0
        while part := await connection.chunk():
            size += len(part)
            if size > self._max_message:
                raise Oversized("the server's answer", self._max_message)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _hand_on(self, frames: list[Frame]) -> None:
        """Give messages to the receiver, unless it has enough for now."""
        if self._starting is not None:
            self._learn_version(frames, self._starting)
        if not self._flowing.is_set():
            await self._flowing.wait()
        if self._receiver is not None and not self._finished and frames:
            self._receiver.received(frames)

    def _learn_version(self, frames: list[Frame], starting: RequestId) -> None:
        for frame in frames:
            if isinstance(frame, bytes) and answers(frame, starting):
                self._starting = None
                version = agreed_version(frame)
                self._link.version = version if version in VERSIONS else None

    # Streams

    async def _stand(self) -> None:
        """Keep the stream for what belongs to no request."""
        try:
            await self._streams.stand()
        except SessionEnded as error:
            self._retire(error)
        except AuthorizationFailed as error:
            logger.warning("there is no standing stream: %s", error)

    async def _is_old(self) -> bool:
        """Whether the server speaks HTTP+SSE: then its stream stays open and says where to POST."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                endpoint, connection, reader = await self._streams.open_old()
        except (ExchangeFailed, TimeoutError) as error:
            logger.debug("the server does not speak HTTP+SSE either: %s", _reason(error))
            return False
        self._link.endpoint = endpoint
        self._spawn(self._follow(connection, reader))
        return True

    async def _follow(self, connection: HttpExchange, reader: EventReader) -> None:
        """Read the one stream of HTTP+SSE. When it ends, so has the connection."""
        reason = await self._streams.follow(connection, reader)
        self._lose(ConnectionLost(reason, maybe_executed=True))

    # What the client says of itself

    def learn_tools(self, tools: list[Tool]) -> list[Tool]:
        """Remember which parameters of tools go into headers; give the tools fit to be called."""
        return self._tools.learn(tools)

    def pause(self) -> None:
        """Stop handing on messages; what is being read fills up, and then the server waits."""
        self._flowing.clear()

    def resume(self) -> None:
        """Read again."""
        self._flowing.set()

    # Ending

    def _fail(self, id: RequestId, error: McpearlError) -> None:
        """Tell of one request that it will not be answered."""
        if self._receiver is None or self._finished:
            return
        failed = getattr(self._receiver, "failed", None)
        if failed is not None:
            failed(id, error)
        else:
            self._receiver.received([connection_failure(id, error)])

    def _retire(self, ended: SessionEnded) -> None:
        """Let the other requests of a session that is no more find out for themselves, then end."""
        if self._retiring is None and not self._finished:
            self._retiring = self._spawn(self._outlive(ended))

    async def _outlive(self, ended: SessionEnded) -> None:
        current = asyncio.current_task()
        others = {exchange.task for exchange in self._exchanges.values() if exchange.task}
        others = {task for task in others if task is not current and not task.done()}
        if others:
            await asyncio.wait(others, timeout=_FAREWELL)
        self._lose(SessionLost(ended.reason, maybe_executed=True))

    def _lose(self, reason: ConnectionLost | None) -> None:
        """Let go of everything and report the end, once."""
        if self._finished:
            return
        for id, why in self._not_run.items():
            self._fail(id, SessionLost(f"not sent: {why}"))
        for id, exchange in self._exchanges.items():
            if not exchange.has_left:
                self._fail(id, ConnectionLost("not sent: the connection ended before"))
        self._finished = True
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()
        self._link.wire.close()
        if self._receiver is not None:
            self._receiver.lost(reason)

    async def close(self) -> None:
        """Let what was taken leave, give up what waits, and end the session."""
        if not self._is_over:
            self._closing = True
            try:
                await self._part()
            finally:
                self._lose(None)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _part(self) -> None:
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=_FAREWELL)
        for exchange in list(self._exchanges.values()):
            exchange.give_up()
        if self._link.session is None:
            return
        try:
            async with asyncio.timeout(_FAREWELL):
                await self._link.delete()
        except (ExchangeFailed, TimeoutError) as error:
            logger.debug("the session was not ended: %s", _reason(error))


class PostExchange:
    """One message on its way, and the request it gives up, if it is that kind of message."""

    __slots__ = (
        "_in_the_way",
        "_waiter",
        "gives_up",
        "has_left",
        "limit",
        "message",
        "modern",
        "outgoing",
        "task",
    )

    def __init__(self, outgoing: Outgoing, message: bytes, gives_up: "PostExchange | None") -> None:
        self.outgoing = outgoing
        self.message = message
        self.gives_up = gives_up
        self.modern = outgoing.version is not None
        self.task: asyncio.Task[None] | None = None
        self.has_left = False  # its bytes are on their way
        self.limit: asyncio.Timeout | None = None  # of a message that gets no answer
        self._in_the_way = True
        self._waiter: asyncio.Future[None] | None = None  # only when somebody waits

    @property
    def name(self) -> str:
        """What to call it in the log."""
        method = self.outgoing.method
        return "an answer" if method is UNSET else f"`{method}`"

    @property
    def starts_session(self) -> bool:
        """Whether everything else of a legacy session comes after it."""
        return self.outgoing.method == "notifications/initialized"

    def give_up(self) -> None:
        """Close its connection, or not even begin."""
        if self.task is not None:
            self.task.cancel()

    async def out_of_the_way(self) -> None:
        """Wait until nothing has to wait for it any more."""
        if self._in_the_way:
            self._waiter = self._waiter or asyncio.get_running_loop().create_future()
            await asyncio.wait([self._waiter])

    def make_way(self) -> None:
        """Let pass who waits."""
        self._in_the_way = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _reason(error: Exception) -> str:
    return str(error) or "no answer in time"


def _problem(status: int, headers: Mapping[str, str]) -> str:
    if status in REDIRECTS:
        return f"HTTP status {status} points to {headers.get('location', '')!r:.200}"
    if 200 <= status < 300:
        kind = headers.get("content-type", "")
        return f"HTTP status {status} with content type {kind!r:.100} is no answer"
    wanted = "; the server wants authorization, see `auth=`" if status == 401 else ""
    return f"HTTP status {status}{wanted}"
