"""Streams of events from a server: read to an answer or to the end, resumed, kept standing.

A stream belongs to one request and ends with its answer, or it stands for what belongs to none. In
the legacy era both may break and go on where they broke. HTTP+SSE of 2024-11-05 has one stream only,
which also says where messages go.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.sse import EventReader, OversizedEvent
from mcpearl.protocol.framing import Frame, FrameError
from mcpearl.runtime import clock
from mcpearl.transports.http_client.endpoint import (
    Oversized,
    RemoteEndpoint,
    SessionEnded,
    is_stream,
)
from mcpearl.transports.http_client.messages import answers
from mcpearl.types.base import RequestId

logger = logging.getLogger("mcpearl.http")

_LINGER = 0.2  # seconds a stream may stay open after its answer, for its connection to be kept
_MAX_BACKOFF = 30.0  # seconds
_MAX_RESUMES = 5  # attempts in a row that reached nobody


class EventStreams:
    """Everything one transport reads as events. What they carry goes to `hand_on`."""

    def __init__(
        self,
        link: RemoteEndpoint,
        max_event: int,
        reconnect_delay: float,
        hand_on: Callable[[list[Frame]], Awaitable[None]],
    ) -> None:
        self._link = link
        self._max_event = max_event
        self._reconnect_delay = reconnect_delay
        self._hand_on = hand_on

    # The stream of one request

    async def until_answered(
        self, connection: HttpExchange, id: RequestId, *, resumable: bool
    ) -> None:
        """Read to the answer of the request `id`, coming back to the stream where that is possible."""
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
        """Hand on events to the end of a stream; whether the answer awaited was among them."""
        try:
            while chunk := await connection.chunk():
                frames, oversized = _frames(reader, chunk)
                await self._hand_on(frames)
                if id is None:
                    continue
                if any(isinstance(frame, bytes) and answers(frame, id) for frame in frames):
                    await _linger(connection)
                    return True
                if oversized:  # it may have been the answer, and coming back would not mend it
                    resumable = False
                    raise Oversized("an event", self._max_event)
        except ExchangeFailed:
            if not (resumable and reader.last_id):
                raise
        return False

    async def _resume(self, reader: EventReader) -> HttpExchange:
        """Come back to a stream that broke, where it broke."""
        problem = ""
        for attempt in range(_MAX_RESUMES):
            await self._wait_to_return(reader, attempt)
            try:
                connection = await self._link.get(reader.last_id)
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
        """Wait as long as the server asked, and longer each time it cannot be reached."""
        reader.restart()
        delay = min(self._reconnect_delay * 2**failures, _MAX_BACKOFF) * clock.uniform(0.75, 1.0)
        if reader.retry is not None:
            asked = reader.retry / 1000
            delay = max(asked, delay) if failures else asked
        await asyncio.sleep(delay)

    # The stream that belongs to no request

    async def stand(self) -> None:
        """Keep the standing stream of a session, if the server has one, for as long as it lasts."""
        reader = EventReader(self._max_event)
        failures = 0
        while True:
            try:
                connection = await self._link.get(reader.last_id)
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
        """Open the stream of HTTP+SSE: where messages go, and what `follow` needs to read on."""
        connection = await self._link.get()
        reader = EventReader(self._max_event)
        try:
            named = await _endpoint(connection, reader)
            endpoint = self._link.within(named)
            if endpoint is None:
                raise ExchangeFailed(f"its endpoint {named!r:.128} is elsewhere", sent=False)
        except BaseException:
            connection.release()
            raise
        return endpoint, connection, reader

    async def follow(self, connection: HttpExchange, reader: EventReader) -> str:
        """Hand on everything an HTTP+SSE server says; give the reason it says no more."""
        try:
            await self._read(connection, reader, resumable=False)
        except ExchangeFailed as error:
            return error.reason
        finally:
            connection.release()
        return "the server ended its event stream"


async def _endpoint(connection: HttpExchange, reader: EventReader) -> str:
    """Read the first thing an HTTP+SSE server says."""
    if not is_stream(connection):
        raise ExchangeFailed(f"GET is answered with HTTP status {connection.status}", sent=False)
    while chunk := await connection.chunk():
        for event in reader.feed(chunk):
            if not isinstance(event, OversizedEvent) and event.event == "endpoint":
                return event.data.decode("utf-8", "replace").strip()
    raise ExchangeFailed("the stream ended without naming its endpoint", sent=False)


def _frames(reader: EventReader, chunk: bytes) -> tuple[list[Frame], bool]:
    """Give the messages in what was read, and whether something was too long to be one."""
    frames: list[Frame] = []
    oversized = False
    for event in reader.feed(chunk):
        if isinstance(event, OversizedEvent):
            oversized = True
            frames.append(FrameError(f"event is over the limit of {event.limit} bytes"))
        elif event.data and event.event == "message":
            frames.append(event.data)
    return frames, oversized


async def _linger(connection: HttpExchange) -> None:
    """Wait a moment for the end of a stream that has said everything, to keep its connection."""
    try:
        async with asyncio.timeout(_LINGER):
            while await connection.chunk():
                pass
    except (TimeoutError, ExchangeFailed):
        pass
