"""The client's transport over Streamable HTTP of both eras, and over the older HTTP+SSE.

Each message is a POST of its own. What comes back, as JSON or as events, is handed on as messages; a
failure concerns only the request it happened to. In the legacy era there is also a session, and a
standing stream for messages that belong to no request. In the modern era a request is cancelled by
closing its response.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from mcpearl.net.http_client.dial import tls_context
from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.sse import EventReader
from mcpearl.net.tls import Tls
from mcpearl.protocol.codec import Envelope
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
from mcpearl.runtime.eager import spawn
from mcpearl.transports.http_client.answers import AnswerReader
from mcpearl.transports.http_client.authorizer import Authorizer
from mcpearl.transports.http_client.deliveries import Deliveries
from mcpearl.transports.http_client.endpoint import Oversized, RemoteEndpoint, SessionEnded
from mcpearl.transports.http_client.event_streams import EventStreams
from mcpearl.transports.http_client.exchange import NOTICE_TIMEOUT, PostExchange
from mcpearl.transports.http_client.failures import reason_of
from mcpearl.transports.http_client.ordering import SendOrder
from mcpearl.transports.http_client.posts import Posts
from mcpearl.transports.transport import ClientReceiver, Outgoing, Receiver, Transport
from mcpearl.types.base import RequestId
from mcpearl.types.tools import Tool

logger = logging.getLogger("mcpearl.http")

_HANDED_ON = 64  # messages handed on at a time; in between, the receiver may pause the transport
_FAREWELL = 2.0  # seconds for messages to leave when closing, and again for ending the session


class HttpTransport(Transport):
    """A server at a URL.

    >>> transport = HttpTransport("https://example.com/mcp", Limits())

    Args:
        url: The `http://` or `https://` address of the endpoint.
        limits: Bounds of the connection.
        headers: Further headers of every request.
        authorizer: Supplies the headers that authorize each request.
        tls: Certificates to trust and to present, or a context, whose ALPN decides on HTTP/2.
        proxy: The `http://` address of a proxy; by default the environment's, if it names one.
        http2: False offers HTTP/1.1 only, True accepts HTTP/2 only, None offers both.
        connect_timeout: Seconds that connecting may take.
        reconnect_delay: Seconds before a broken stream is resumed, unless the server names a time.
        max_exchanges: Requests under way at once; further ones wait.
    """

    medium = "http"
    keeps_alive = True  # requests have timeouts, and connections the system's own probes

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
        context = tls_context(tls, http2) if url.startswith("https:") else None
        pool = ConnectionPool(
            url, tls=context, proxy=proxy, connect_timeout=connect_timeout, http2=http2 is True
        )
        self._endpoint = endpoint = RemoteEndpoint(url, pool, headers, authorizer)
        self._connect_timeout = connect_timeout
        bound = limits.max_message
        self._streams = EventStreams(endpoint, bound, reconnect_delay, self._hand_on)
        self._answers = AnswerReader(endpoint, self._streams, bound, self._hand_on, self._fall_back)
        self._posts = Posts(endpoint, self._answers)
        self._order = SendOrder(max_exchanges)
        self._deliveries = Deliveries(limits, self._leave, self._deliver, self._overflowed)
        self._receiver: ClientReceiver | None = None
        self._exchanges: dict[RequestId, PostExchange] = {}  # unanswered requests
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()  # those of them that closing waits for
        self._paused = False
        self._flowing = asyncio.Event()  # set unless the transport is paused
        self._flowing.set()
        self.reading: RequestId | None = None
        """The request on whose stream the messages arrived that the receiver is being handed."""
        self._retiring: asyncio.Task[None] | None = None  # set once the server ended the session
        self._not_run: dict[RequestId, str] = {}  # requests that the session did not take, and why
        self.guard: Callable[[], Awaitable[list[str]]] | None = None
        """Looks up the host and returns the addresses that may be connected to; raises to refuse."""
        self._over = False  # closing, or closed: nothing more is taken
        self._finished = False  # the end was reported

    async def open(self, receiver: Receiver) -> None:
        """Connect, to check that the server is there; the connection is kept for the first message."""
        if not isinstance(receiver, ClientReceiver):
            raise TypeError(f"{type(receiver).__name__} is not a `ClientReceiver`")
        if self.guard is not None:
            self._endpoint.pool.pin(await self.guard())
        try:
            await self._endpoint.pool.reach()
        except ExchangeFailed as error:
            raise ConnectionLost(error.reason) from None
        self._receiver = receiver

    # Sending

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        """Take one message, and begin its exchange."""
        receiver = self._receiver
        if self._over or receiver is None:
            return
        if about is None:
            raise TypeError("`HttpTransport.send` needs `about`, to make headers from")
        exchange = PostExchange(about, message, receiver, self._order)
        if about.method is not None and about.id is not None:
            self._begin_request(exchange, about.id)
        elif about.cancels is None or not self._cancel(exchange, about.cancels):
            self._begin(exchange)

    def _cancel(self, notice: PostExchange, id: RequestId) -> bool:
        """Give up a request; return False if `notice` has to be sent to the server for that."""
        request = self._exchanges.get(id)
        if request is None:
            return notice.about.modern
        if request.about.modern or not request.has_left:
            self._give_up(request)  # a modern server sees its response closed
            return True
        notice.gives_up = request
        return False

    def _begin_request(self, exchange: PostExchange, id: RequestId) -> None:
        if self._retiring is not None:
            self._not_run[id] = "the server ended the session"
            return
        self._exchanges[id] = exchange
        lasts = exchange.about.method == LISTEN
        if not lasts and self._order.leaves_now(exchange):
            answered = partial(self._answered, exchange, copy_context())
            if self._posts.send_now(exchange, answered):
                return
        self._carry_out(exchange, self._order.enter(exchange, lasts=lasts))

    def _answered(self, exchange: PostExchange, context: Context) -> None:
        """Take the answer to a request that was sent at once: in place, or in a task that reads it."""
        connection, id = exchange.begun, exchange.about.id
        assert connection is not None
        assert id is not None
        ready = self._deliveries.has_room and not self._paused
        answer = self._answers.at_once(exchange, connection) if ready else None
        if answer is None or self._receiver is None:
            context.run(self._carry_out, exchange)  # callbacks need the request's context
            return
        exchange.begun = None
        connection.release()
        self._forget(exchange, id)
        self.reading = id
        self._receiver.received([answer])
        self.reading = None

    def _carry_out(
        self, exchange: PostExchange, slot: "asyncio.Future[None] | None" = None
    ) -> None:
        """Begin a request in a task of its own, or continue it there."""
        id = exchange.about.id
        assert id is not None
        task = spawn(asyncio.get_running_loop(), self._request(exchange, id, slot))
        exchange.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._forget(exchange, id))

    def _forget(self, exchange: PostExchange, id: RequestId) -> None:
        """Forget a request that is over, even if it was given up before it began."""
        self._order.leave(exchange)
        if self._exchanges.get(id) is exchange:
            del self._exchanges[id]

    def _give_up(self, request: PostExchange) -> None:
        """Close the connection of a request, or do not begin it."""
        begun = request.begun
        if request.task is not None:
            request.task.cancel()
        elif begun is not None:
            request.begun = None
            begun.release()
            self._forget(request, request.about.id or 0)

    def _begin(self, exchange: PostExchange) -> None:
        """Begin to send a notification or an answer."""
        if not exchange.is_notification:
            self._deliveries.answer(exchange)
            return
        after = self._order.predecessors()
        if exchange.starts_session:
            exchange.opens = self._order.open_session()
        self._deliveries.notify(exchange, after)

    def _leave(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that closing waits for."""
        task = self._spawn(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _overflowed(self) -> None:
        """End the connection to a server that does not take what it is sent."""
        error = LimitReached("the server does not take what it is sent: see `Limits.max_outgoing`")
        asyncio.get_running_loop().call_soon(self._lose, error)  # not within `send`

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = spawn(asyncio.get_running_loop(), work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def flush(self) -> None:
        """Do nothing: each message leaves at once."""

    async def _request(
        self, exchange: PostExchange, id: RequestId, slot: "asyncio.Future[None] | None"
    ) -> None:
        """Carry out the exchange of one request, whatever its outcome."""
        try:
            if self._order.opening is not None and exchange.begun is None:
                await self._order.opened()
            if slot is not None:
                await slot
            await self._posts.post(exchange)
        except SessionEnded as error:
            if not error.sent:
                self._not_run[id] = error.reason
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

    async def _deliver(self, exchange: PostExchange) -> None:
        """Send a message that has no answer, then do what waited for that."""
        await self._send_off(exchange)
        if exchange.gives_up is not None:
            self._give_up(exchange.gives_up)
        elif exchange.opens is not None:
            exchange.opens.set_result(None)
            if not (self._endpoint.is_sse or self._over):
                self._spawn(self._stand())

    async def _send_off(self, exchange: PostExchange) -> None:
        """Send a message that has no answer, whatever its outcome."""
        try:
            async with asyncio.timeout(NOTICE_TIMEOUT) as exchange.limit:
                await self._posts.persist(exchange)
        except SessionEnded as error:
            self._retire(error)
        except (ExchangeFailed, TimeoutError, AuthorizationFailed) as error:
            self._undelivered(exchange, reason_of(error))
        except Exception as error:
            logger.exception("the exchange of %s failed", exchange.name)
            self._undelivered(exchange, str(error))

    def _undelivered(self, exchange: PostExchange, reason: str) -> None:
        if exchange.starts_session:  # without it the server will take nothing else
            self._lose(ConnectionLost(f"the session could not be opened: {reason}"))
        else:
            logger.warning("%s was not delivered: %s", exchange.name, reason)

    @property
    def has_session(self) -> bool:
        """Whether the server opened a session, and so may keep state for this client."""
        return self._endpoint.has_session

    def learn_tools(self, tools: list[Tool]) -> list[Tool]:
        """Note which parameters of tools go into headers; return the tools with valid schemas."""
        return self._posts.tools.learn(tools)

    # Receiving

    async def _hand_on(
        self, frames: Sequence[Frame | Envelope], id: RequestId | None = None
    ) -> None:
        """Pass messages to the receiver, once it takes any and its answers have room."""
        if len(frames) > _HANDED_ON:
            for start in range(0, len(frames), _HANDED_ON):
                await self._hand_on(frames[start : start + _HANDED_ON], id)
            return
        while self._paused or not self._deliveries.has_room:
            await self._flowing.wait()
            await self._deliveries.room()
        if self._receiver is not None and not self._finished and frames:
            self.reading = id
            self._receiver.received(frames)
            self.reading = None

    def pause(self) -> None:
        """Stop handing on messages; when the buffers are full, the server has to wait."""
        self._paused = True
        self._flowing.clear()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        self._flowing.set()

    async def _stand(self) -> None:
        """Keep a stream open for messages that belong to no request."""
        try:
            await self._streams.stand()
        except SessionEnded as error:
            self._retire(error)
        except AuthorizationFailed as error:
            logger.warning("there is no standing stream: %s", error)

    async def _fall_back(self) -> bool:
        """Try HTTP+SSE: its stream stays open, and names the address for messages."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                target, connection, reader = await self._streams.open_old()
        except (ExchangeFailed, TimeoutError) as error:
            logger.debug("the server does not speak HTTP+SSE either: %s", reason_of(error))
            return False
        self._endpoint.send_messages_to(target)
        self._spawn(self._follow(connection, reader))
        return True

    async def _follow(self, connection: HttpExchange, reader: EventReader) -> None:
        """Read the one stream of HTTP+SSE. The connection ends with it."""
        reason = await self._streams.follow(connection, reader)
        self._lose(ConnectionLost(reason, maybe_executed=True))

    # Ending

    def _fail(self, id: RequestId, error: McpearlError) -> None:
        """Report that a request will not be answered."""
        if self._receiver is not None and not self._finished:
            self._receiver.failed(id, error)

    def _retire(self, ended: SessionEnded) -> None:
        """End the connection, once the outcome of the session's other requests is known."""
        if self._retiring is None and not self._finished:
            self._retiring = self._spawn(self._outlive(ended))

    async def _outlive(self, ended: SessionEnded) -> None:
        current = asyncio.current_task()
        for exchange in list(self._exchanges.values()):
            if exchange.begun is not None:
                self._carry_out(exchange)  # in a task, which can be waited for
        others = {exchange.task for exchange in self._exchanges.values() if exchange.task}
        others = {task for task in others if task is not current and not task.done()}
        if others:
            await asyncio.wait(others, timeout=_FAREWELL)
        self._lose(SessionLost(ended.reason, maybe_executed=True))

    def _lose(self, reason: McpearlError | None) -> None:
        """Release everything and report the end, once."""
        if self._finished:
            return
        for id, why in self._not_run.items():
            self._fail(id, SessionLost(f"not sent: {why}"))
        for id, exchange in self._exchanges.items():
            if not exchange.has_left:
                self._fail(id, ConnectionLost("not sent: the connection ended before"))
        self._over = self._finished = True
        for exchange in list(self._exchanges.values()):
            if exchange.begun is not None:
                self._give_up(exchange)
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()
        self._deliveries.clear()
        self._endpoint.pool.close()
        if self._receiver is not None:
            self._receiver.lost(reason)

    async def close(self) -> None:
        """Let messages without an answer leave, give up the requests, and end the session."""
        if not self._over:
            self._over = True
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
            self._give_up(exchange)
        if not self._endpoint.has_session:
            return
        try:
            async with asyncio.timeout(_FAREWELL):
                await self._endpoint.delete()
        except (ExchangeFailed, TimeoutError) as error:
            logger.debug("the session was not ended: %s", reason_of(error))
