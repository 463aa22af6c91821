"""Reads messages from the HTTP answer to a POST, whichever form the answer has."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec import UNSET

from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.http_client.http1 import Http1Connection
from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import Malformed
from mcpearl.protocol.framing import Frame
from mcpearl.transports.http_client.endpoint import (
    EVENTS,
    JSON,
    Oversized,
    RemoteEndpoint,
    kind_of,
)
from mcpearl.transports.http_client.event_streams import EventStreams
from mcpearl.transports.http_client.exchange import PostExchange
from mcpearl.transports.http_client.failures import (
    error_in,
    http_failure,
    is_unauthorized,
    is_unreadable_answer,
    problem_of,
    shown,
)
from mcpearl.transports.mirrored_headers import SESSION_ID
from mcpearl.types.base import RequestId

logger = logging.getLogger("mcpearl.http")

_NOT_NOW = (429, 503)  # with `Retry-After`: the message was not taken, and may be sent again
_OLD_TRANSPORT = (400, 404, 405)  # how an HTTP+SSE server may refuse a POST to its stream


class NotNow(ExchangeFailed):
    """The server did not take a message, and asks for it again after some seconds."""

    def __init__(self, reason: str, after: float) -> None:
        super().__init__(reason, sent=False)
        self.after = after


class AnswerReader:
    """Reads the answers of one endpoint.

    Args:
        endpoint: Where the answers come from.
        streams: Reads the answers that are streams of events.
        max_message: Bytes an answer may have.
        hand_on: Takes the messages.
        fall_back: Tries HTTP+SSE; returns whether the server speaks it.
    """

    def __init__(
        self,
        endpoint: RemoteEndpoint,
        streams: EventStreams,
        max_message: int,
        hand_on: Callable[[Sequence[Frame | Envelope]], Awaitable[None]],
        fall_back: Callable[[], Awaitable[bool]],
    ) -> None:
        self._endpoint = endpoint
        self._streams = streams
        self._max_message = max_message
        self._hand_on = hand_on
        self._fall_back = fall_back

    def at_once(self, exchange: PostExchange, connection: Http1Connection) -> Envelope | None:
        """Return the answer to a request, if it is whole and in the usual form; None if not.

        Nothing is taken from the connection, so `read` can handle every other case.
        """
        about = exchange.about
        if connection.status != 200 or self._endpoint.is_sse or about.method == "initialize":
            return None
        is_json = connection.headers.get("content-type") == JSON or kind_of(connection) == JSON
        body = connection.whole() if is_json else None
        if body is None or about.id is None or len(body) > self._max_message:
            return None
        answer = _answer_in(body, about.id)
        return answer if isinstance(answer, Envelope) else None

    async def read(self, exchange: PostExchange, connection: HttpExchange) -> bool:
        """Read the answer to one message; return whether the message has to be sent again."""
        about, status = exchange.about, connection.status
        if about.id is None or about.method is None:
            await self._check_taken(exchange, connection)
            return False
        if self._endpoint.is_sse and 200 <= status < 300:
            return False  # the answer comes on the event stream
        kind = kind_of(connection) if status == 200 else ""
        if about.method == "initialize" and status == 200:
            self._endpoint.join_session(connection.headers.get(SESSION_ID.lower(), ""))
        if kind == JSON:
            body = await self._body(connection)
            await self._hand_on([_answer_in(body, about.id)])
        elif kind == EVENTS:
            await self._streams.until_answered(connection, about.id, resumable=not about.modern)
        else:
            return await self._refused(about.method, about.id, connection)
        return False

    async def _check_taken(self, exchange: PostExchange, connection: HttpExchange) -> None:
        """Log that a message without an answer was refused; raise `NotNow` if it was only for now."""
        status = connection.status
        if status >= 300:
            body = shown(await self._body(connection))
            if status in _NOT_NOW and (wait := connection.headers.get("retry-after")) is not None:
                raise NotNow(f"HTTP status {status}{body}", _seconds(wait))
            logger.warning("%s was refused with HTTP status %d%s", exchange.name, status, body)

    async def _refused(self, method: str, id: RequestId, connection: HttpExchange) -> bool:
        status, headers = connection.status, connection.headers
        body = await self._body(connection)
        error = error_in(body, id) if status >= 400 else None
        if is_unauthorized(status, headers, error):
            raise self._endpoint.unauthorized(status, body, headers.get("www-authenticate", ""))
        may_be_old = method == "initialize" and not self._endpoint.is_sse
        # With 405 there is no POST, whatever the body says.
        unexplained = error is None or status == 405
        if may_be_old and unexplained and status in _OLD_TRANSPORT and await self._fall_back():
            return True
        problem = problem_of(status, headers) + shown(body)
        await self._hand_on([error or http_failure(id, status, problem, headers)])
        return False

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


def _seconds(retry_after: str) -> float:
    """Return the seconds of a `Retry-After`; 1 if it is a date or cannot be read."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 1.0


def _answer_in(body: bytes, id: RequestId) -> Envelope | bytes:
    """Return the answer to the request `id`, or an error that says what the server sent instead."""
    try:
        envelope = codec.decode(body)
    except Malformed as error:
        if body[:1] == b"[" or is_unreadable_answer(error, id):
            return body  # a batch of version 2025-03-26, or an answer that the receiver refuses
    else:
        if envelope.method is UNSET and envelope.id == id:
            return envelope
    problem = f"the server sent something else than the answer to the request{shown(body)}"
    return http_failure(id, 200, problem, {})
