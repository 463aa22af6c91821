"""Writes an event stream as an HTTP response, with a comment as a sign of life during silence."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mcpearl.net.http_server.request import EVENTS, ClientLeft, HeaderPairs, Request
from mcpearl.net.http_server.timeouts import STALL_TIMEOUT
from mcpearl.net.sse import KEEP_ALIVE
from mcpearl.runtime.late import LateWatch
from mcpearl.transports.http_server.event_stream import StreamReader

logger = logging.getLogger("mcpearl.http")

_STREAM_HEADERS: HeaderPairs = (
    (b"content-type", EVENTS),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Pace:
    """Watches all streams of an endpoint: for silence, and for clients that do not read."""

    __slots__ = ("silence", "stalls")

    def __init__(self, keep_alive: float, stall_timeout: float = STALL_TIMEOUT) -> None:
        # A `LateWatch` notifies after one to two ticks.
        self.silence = LateWatch(keep_alive / 2)
        self.stalls = LateWatch(stall_timeout / 2)

    def stop(self) -> None:
        """Stop both."""
        self.silence.stop()
        self.stalls.stop()


async def respond_stream(
    request: Request,
    reader: StreamReader,
    gone: "asyncio.Future[None]",
    pace: Pace,
    extra: HeaderPairs = (),
    first: bytes = b"",
) -> None:
    """Write events as they come, after `first`, until the stream ends or `gone` is done."""
    gone.add_done_callback(lambda _: reader.wake())
    try:
        await request.start(200, (*_STREAM_HEADERS, *extra))
        # The head leaves with the first part, so a part is sent now, even if it is empty.
        part, more = first + reader.take(), not reader.is_over
        await _send(request, part, more=more)
        while more and not gone.done():
            part = KEEP_ALIVE
            if reader.has_news or await reader.wait(pace.silence):
                part, more = reader.take(), not reader.is_over
            if not gone.done():
                await _send(request, part, more=more)  # meanwhile there may be news again
    except ClientLeft:
        logger.warning("a client that does not read its stream was dropped")
    finally:
        reader.close()


async def _send(request: Request, part: bytes, *, more: bool) -> None:
    await (request.write(part) if more else request.end(part))


@contextmanager
def watched(request: Request, seconds: float | None) -> Iterator["asyncio.Future[None]"]:
    """Yield a future that is done when the client is gone, or so many seconds have passed.

    A stream must not outlive the token it was opened with; with a new token it is resumed.
    """
    loop = asyncio.get_running_loop()
    gone = loop.create_task(request.until_gone())
    end = None if seconds is None else loop.call_later(seconds, gone.cancel)
    try:
        yield gone
    finally:
        gone.cancel()
        if end is not None:
            end.cancel()
