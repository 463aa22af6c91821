"""Event streams from a server: read up to an answer or to the end, resumed, kept open.

A stream belongs to one request and ends with its answer, or it carries what belongs to no request. In
the legacy era both may break, and are resumed after the last event. HTTP+SSE of 2024-11-05 has only
one stream, which also names the address for messages.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import UNSET

from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.sse import AnyEvent, EventReader, OversizedEvent
from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import Malformed
from mcpearl.protocol.framing import Frame, FrameError
from mcpearl.transports.http_client.endpoint import (
    Oversized,
    RemoteEndpoint,
    SessionEnded,
    is_stream,
)
from mcpearl.transports.http_client.failures import is_unreadable_answer
from mcpearl.transports.http_client.resumption import Resumption, resume_delays
from mcpearl.types.base import RequestId

logger = logging.getLogger("mcpearl.http")

_LINGER = 0.2  # seconds a stream may stay open after its answer, for its connection to be kept
_MAX_RESUMES = 5  # failed attempts in a row


class HandOn(Protocol):
    """Takes the messages of a stream."""

    async def __call__(
        self, frames: Sequence[Frame | Envelope], id: RequestId | None = None, /
    ) -> Any:
        """Take messages, and the request that their stream belongs to."""


class EventStreams:
    """Everything one transport reads as events.

    Args:
        endpoint: Where the streams come from.
        max_event: Bytes an event may have.
        reconnect_delay: Seconds before a broken stream is resumed, unless the server names a time.
        hand_on: Takes the messages that events carry, and the request whose stream it is.
    """

    def __init__(
        self,
        endpoint: RemoteEndpoint,
        max_event: int,
        reconnect_delay: float,
        hand_on: HandOn,
    ) -> None:
        self._endpoint = endpoint
        self._max_event = max_event
        self._delays = resume_delays(reconnect_delay)
        self._hand_on = hand_on

    # The stream of one request

    async def until_answered(
        self, connection: HttpExchange, id: RequestId, *, resumable: bool
    ) -> None:
        """Read up to the answer to the request `id`, resuming the stream where that is possible."""
        reader = EventReader(self._max_event)
        resumption = None
        if resumable:
            resumption = Resumption(self._delays)
            resumption.opened()
        try:
            while not await self._read(connection, reader, resumption, id):
                if resumption is None or not reader.last_id:
                    raise ExchangeFailed("the server ended the stream before the answer", sent=True)
                connection.release()
                connection = await self._resume(reader, resumption)
        finally:
            connection.release()

    async def _read(
        self,
        connection: HttpExchange,
        reader: EventReader,
        resumption: Resumption | None,
        id: RequestId | None = None,
    ) -> bool:
        """Hand on events to the end of a stream, or to the answer to the request `id`.

        Returns whether that answer came.

        Args:
            connection: The stream.
            reader: Reads the events.
            resumption: Notified of events; None if the stream is not to be resumed.
            id: The request that the stream belongs to.
        """
        try:
            while chunk := await connection.chunk():
                events = reader.feed(chunk)
                if events and resumption is not None:
                    resumption.heard()
                frames, oversized = _frames(events)
                if id is None:
                    await self._hand_on(frames)
                    continue
                messages = [_decoded(frame) for frame in frames]
                await self._hand_on(messages, id)
                if any(_answers(message, id) for message in messages):
                    await _linger(connection)
                    return True
                if oversized:  # it may have been the answer, and resuming would not help
                    raise Oversized("an event", self._max_event)
        except Oversized:
            raise
        except ExchangeFailed:
            if resumption is None or not reader.last_id:
                raise
        return False

    async def _resume(self, reader: EventReader, resumption: Resumption) -> HttpExchange:
        """Open a broken stream again, after its last event."""
        problem = ""
        for _ in range(_MAX_RESUMES):
            await _wait_to_return(reader, resumption)
            try:
                connection = await self._endpoint.get(reader.last_id)
            except SessionEnded:
                raise SessionEnded(sent=True) from None
            except ExchangeFailed as error:
                problem = error.reason
                continue
            if is_stream(connection):
                resumption.opened()
                return connection
            connection.release()
            problem = f"HTTP status {connection.status}"
            if connection.status < 500:
                break
        raise ExchangeFailed(f"the stream broke and could not be resumed: {problem}", sent=True)

    # The stream that belongs to no request

    async def stand(self) -> None:
        """Keep the standing stream of a session open, if the server has one."""
        reader = EventReader(self._max_event)
        resumption = Resumption(self._delays)
        while True:
            try:
                connection = await self._endpoint.get(reader.last_id)
                try:
                    if is_stream(connection):
                        resumption.opened()
                        await self._read(connection, reader, resumption)
                    elif connection.status == 400 and reader.last_id:
                        reader.last_id = ""  # the events after it are lost; read new ones
                        reader.restart()
                        continue
                    elif connection.status < 500 and connection.status != 429:
                        status = connection.status
                        logger.debug("the server has no standing stream: HTTP status %d", status)
                        return
                finally:
                    connection.release()
            except SessionEnded:
                raise
            except ExchangeFailed as error:
                logger.debug("the standing stream broke: %s", error)
            await _wait_to_return(reader, resumption)

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
            await self._read(connection, reader, None)
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


async def _wait_to_return(reader: EventReader, resumption: Resumption) -> None:
    """Wait until a stream that ended may be opened again."""
    reader.restart()
    await asyncio.sleep(resumption.next_delay(reader.retry))


def _frames(events: Sequence[AnyEvent]) -> tuple[list[Frame], bool]:
    """Return the messages that events carry, and whether an event was over the limit."""
    frames: list[Frame] = []
    oversized = False
    for event in events:
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
