"""Giving an HTTP response straight on ASGI: whole, or as a stream of events."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mcpearl.net.http_server.request import JSON, Headers, Receive, Request, Send
from mcpearl.net.http_server.timeouts import STALLED
from mcpearl.net.sse import KEEP_ALIVE
from mcpearl.runtime.late import LateWatch
from mcpearl.transports.http_server.event_stream import StreamReader
from mcpearl.transports.http_server.gate import Refused

logger = logging.getLogger("mcpearl.http")

EVENTS = b"text/event-stream"
_STREAM_HEADERS = (
    (b"content-type", EVENTS),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def check_type(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that is not said to be JSON."""
    kind = headers.get(b"content-type", b"")
    if kind != JSON and kind.partition(b";")[0].strip().lower() != JSON:
        raise Refused(415, "Content-Type must be application/json")


_MAX_ACCEPTING = 100
_accepting: set[tuple[bytes, tuple[bytes, ...]]] = (
    set()
)  # found to be enough; most are the same few


def check_accept(headers: Mapping[bytes, bytes], *kinds: bytes) -> None:
    """Refuse a client that does not take what it may be given."""
    given = headers.get(b"accept", b"*/*")
    if (given, kinds) in _accepting:
        return
    accepted = given.lower()
    missing = [kind.decode() for kind in kinds if kind not in accepted]
    if missing and b"*/*" not in accepted:
        raise Refused(406, f"Accept must list {' and '.join(missing)}")
    if len(_accepting) < _MAX_ACCEPTING:
        _accepting.add((given, kinds))


class Pace:
    """The clocks of all streams of an endpoint: how long they are silent, and how long not read."""

    __slots__ = ("silence", "stalls")

    def __init__(self, keep_alive: float, stall_timeout: float = STALLED) -> None:
        # Who lingers is told after one to two ticks.
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
    extra: Headers = (),
    first: bytes = b"",
) -> None:
    """Write a stream as it comes, `first` before anything else, until it ends or the client is `gone`."""
    headers = [*_STREAM_HEADERS, *extra]
    gone.add_done_callback(lambda _: reader.wake())
    parts = _Parts(request.send, pace.stalls)
    try:
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        # The head leaves with the first part, which is there now, if empty.
        part, more = first + reader.take(), not reader.is_over
        await parts.send(part, more=more)
        while more and not gone.done():
            part = KEEP_ALIVE
            if reader.has_news or await reader.wait(pace.silence):
                part, more = reader.take(), not reader.is_over
            if not gone.done():
                await parts.send(part, more=more)  # when it is written, there may be news again
    except asyncio.CancelledError:
        if not parts.stalled:
            raise
        logger.warning("a client that does not read its stream was dropped")
    finally:
        reader.close()


class _Parts:
    """The parts of one response. When one is not taken for too long, no more are sent."""

    __slots__ = ("_send", "_stalls", "_task", "stalled")

    def __init__(self, send: Send, stalls: LateWatch) -> None:
        self._send = send
        self._stalls = stalls
        self._task = asyncio.current_task()
        self.stalled = False

    async def send(self, chunk: bytes, *, more: bool = True) -> None:
        self._stalls.add(self)
        try:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": more})
        finally:
            self._stalls.discard(self)

    def late(self) -> None:
        assert self._task is not None
        self.stalled = True
        self._task.cancel()


async def disconnected(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


@contextmanager
def watched(receive: Receive, seconds: float | None) -> Iterator["asyncio.Future[None]"]:
    """Give a future that is done when the client is gone, or has had its time.

    A stream is no way to go on hearing with a token that is over; with a new one it is resumed.
    """
    loop = asyncio.get_running_loop()
    gone = loop.create_task(disconnected(receive))
    end = None if seconds is None else loop.call_later(seconds, gone.cancel)
    try:
        yield gone
    finally:
        gone.cancel()
        if end is not None:
            end.cancel()


_EXPOSED = b"mcp-session-id, mcp-protocol-version, www-authenticate, dpop-nonce"


def readable_by(origin: bytes) -> Headers:
    """What lets the page that asks, and was found welcome, read the response."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    )


def preflight(headers: Mapping[bytes, bytes]) -> Headers:
    """What a page that was found welcome is told before it asks."""
    asked = headers.get(b"access-control-request-headers", b"*")
    return (
        (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
        (b"access-control-allow-headers", asked),
        (b"access-control-max-age", b"600"),
    )
