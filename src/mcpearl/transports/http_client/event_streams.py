"""Event streams from a server: read up to an answer or to the end, resumed, kept standing.

A stream belongs to one request and ends with its answer, or it carries what belongs to no request. In
the legacy era both may break, and are resumed after the last event. HTTP+SSE of 2024-11-05 has only
one stream, which also names the address for messages.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec import UNSET

from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.sse import EventReader, OversizedEvent
from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import Malformed
from mcpearl.protocol.framing import Frame, FrameError
from mcpearl.runtime import clock
from mcpearl.transports.http_client.endpoint import (
    Oversized,
    RemoteEndpoint,
    SessionEnded,
    is_stream,
)
from mcpearl.transports.http_client.failures import is_unreadable_answer
from mcpearl.types.base import RequestId

logger = logging.getLogger("mcpearl.http")

_LINGER = 0.2  # seconds a stream may stay open after its answer, for its connection to be kept
_MAX_BACKOFF = 30.0  # seconds
_MAX_RESUMES = 5  # failed attempts in a row


class EventStreams:
    """Everything one transport reads as events.

    Args:
        endpoint: Where the streams come from.
        max_event: Bytes an event may have.
        reconnect_delay: Seconds before a broken stream is resumed, unless the server names a time.
        hand_on: Takes the messages that events carry.
    """

    def __init__(
        self,
        endpoint: RemoteEndpoint,
        max_event: int,
        reconnect_delay: float,
        hand_on: Callable[[Sequence[Frame | Envelope]], Awaitable[None]],
    ) -> None:
        self._endpoint = endpoint
        self._max_event = max_event
        self._reconnect_delay = reconnect_delay
        self._hand_on = hand_on

    # The stream of one request

    async def until_answered(
        self, connection: HttpExchange, id: RequestId, *, resumable: bool
    ) -> None:
        """Read up to the answer to the request `id`, resuming the stream where that is possible."""
        reader = EventReader(self._max_event)
        try:
            while not await self._read(connection, reader, id, resumable):
                if not (resumable and reader.last_id):
                    raise ExchangeFailed("the server ended the stream before the answer", sent=True)
                connection.release()
                connection = await self._resume(reader)
        finally:
            connection.release()

    async def _read(
        self,
        connection: HttpExchange,
        reader: EventReader,
        id: RequestId | None = None,
        resumable: bool = True,
    ) -> bool:
        """Hand on events to the end of a stream, or to the answer to the request `id`.

        Returns whether that answer came.
        """
        try:
            while chunk := await connection.chunk():
                frames, oversized = _frames(reader, chunk)
                if id is None:
                    await self._hand_on(frames)
                    continue
                messages = [_decoded(frame) for frame in frames]
                await self._hand_on(messages)
                if any(_answers(message, id) for message in messages):
                    await _linger(connection)
                    return True
                if oversized:  # it may have been the answer, and resuming would not help
                    resumable = False
                    raise Oversized("an event", self._max_event)
        except ExchangeFailed:
            if not (resumable and reader.last_id):
                raise
        return False

    async def _resume(self, reader: EventReader) -> HttpExchange:
        """Open a broken stream again, after its last event."""
        problem = ""
        for attempt in range(_MAX_RESUMES):
            await self._wait_to_return(reader, attempt)
            try:
                connection = await self._endpoint.get(reader.last_id)
            except SessionEnded:
                raise SessionEnded(sent=True) from None
            except ExchangeFailed as error:
                problem = error.reason
                continue
            if is_stream(connection):
                return connection
            connection.release()
            problem = f"HTTP status {connection.status}"
            if connection.status < 500:
                break
        raise ExchangeFailed(f"the stream broke and could not be resumed: {problem}", sent=True)

    async def _wait_to_return(self, reader: EventReader, failures: int) -> None:
        """Wait as long as the server asked for, and longer after each failure."""
        reader.restart()
        delay = min(self._reconnect_delay * 2**failures, _MAX_BACKOFF) * clock.uniform(0.75, 1.0)
        if reader.retry is not None:
            asked = reader.retry / 1000
            delay = max(asked, delay) if failures else asked
        await asyncio.sleep(delay)

    # The stream that belongs to no request

    async def stand(self) -> None:
        """Keep the standing stream of a session open, if the server has one."""
        reader = EventReader(self._max_event)
        failures = 0
        while True:
            try:
                connection = await self._endpoint.get(reader.last_id)
                try:
                    if is_stream(connection):
                        failures = 0
                        await self._read(connection, reader)
                    elif connection.status < 500:
                        status = connection.status
                        logger.debug("the server has no standing stream: HTTP status %d", status)
                        return
                finally:
                    connection.release()
            except SessionEnded:
                raise
            except ExchangeFailed as error:
                logger.debug("the standing stream broke: %s", error)
            await self._wait_to_return(reader, failures)
            failures += 1

    # HTTP+SSE of 2024-11-05

    async def open_old(self) -> tuple[str, HttpExchange, EventReader]:
        """Open the stream of HTTP+SSE; return the target for messages, and what `follow` needs."""
        connection = await self._endpoint.get()
        reader = EventReader(self._max_event)
        try:
            named = await _endpoint(connection, reader)
            endpoint = self._endpoint.within(named)
            if endpoint is None:
                raise ExchangeFailed(
                    f"its endpoint {named!r:.128} is on another origin", sent=False
                )
        except BaseException:
            connection.release()
            raise
        return endpoint, connection, reader

    async def follow(self, connection: HttpExchange, reader: EventReader) -> str:
        """Hand on everything an HTTP+SSE server sends; return why its stream ended."""
        try:
            await self._read(connection, reader, resumable=False)
        except ExchangeFailed as error:
            return error.reason
        finally:
            connection.release()
        return "the server ended its event stream"


async def _endpoint(connection: HttpExchange, reader: EventReader) -> str:
    """Read the first event of an HTTP+SSE server, which names the address for messages."""
    if not is_stream(connection):
        raise ExchangeFailed(f"GET is answered with HTTP status {connection.status}", sent=False)
    while chunk := await connection.chunk():
        for event in reader.feed(chunk):
            if not isinstance(event, OversizedEvent) and event.event == "endpoint":
                return event.data.decode("utf-8", "replace").strip()
    raise ExchangeFailed("the stream ended without naming its endpoint", sent=False)


def _frames(reader: EventReader, chunk: bytes) -> tuple[list[Frame], bool]:
    """Return the messages in what was read, and whether an event was over the limit."""
    frames: list[Frame] = []
    oversized = False
    for event in reader.feed(chunk):
        if isinstance(event, OversizedEvent):
            oversized = True
            frames.append(FrameError(f"event is over the limit of {event.limit} bytes"))
        elif event.data and event.event == "message":
            frames.append(event.data)
    return frames, oversized


def _decoded(frame: Frame) -> Frame | Envelope:
    """Decode a message; one that is not a single message stays as it is."""
    if isinstance(frame, bytes):
        try:
            return codec.decode(frame)
        except Malformed:
            pass
    return frame


def _answers(message: Frame | Envelope, id: RequestId) -> bool:
    """Whether a message is the answer to the request `id`, even an unreadable one."""
    if isinstance(message, Envelope):
        return message.method is UNSET and message.id == id
    if isinstance(message, bytes):
        try:
            codec.decode(message)
        except Malformed as error:
            return is_unreadable_answer(error, id)
    return False


async def _linger(connection: HttpExchange) -> None:
    """Wait a moment for the end of a stream after its answer, so that its connection is kept."""
    try:
        async with asyncio.timeout(_LINGER):
            while await connection.chunk():
                pass
    except (TimeoutError, ExchangeFailed):
        pass
