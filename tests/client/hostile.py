"""Servers that do to a call whatever they like, on every wire, and time that passes as a test says.

A hostile server reads the client's messages and answers each with a `Trick`. How messages travel is the
wire's business: every wire offers the same `Channel`. Everything runs on one loop whose clock is moved:
half a minute of waiting takes a fraction of a second, and what is late is late whatever the machine does.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from hyperframe.frame import GoAwayFrame
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from mcpearl.client.handshake import legacy_servers
from mcpearl.testing.clock import MovableClock
from tests.client.peers import DISCOVERED, INITIALIZED, Message
from tests.net.http_client.http2_peer import Asked, http2_peer

STEP = 0.25  # seconds by which the time moves
_TURNS = 2000  # of the loop, for what is on its way when the time has come


class Channel:
    """Where the answer to one message goes."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        close: Callable[[], None],
        http: "HttpAnswer | None" = None,
    ) -> None:
        self._send = send
        self.close = close
        self.http = http
        """The response, which has a status and an end; None on wires without."""
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, **members: Any) -> None:
        self._send(json.dumps({"jsonrpc": "2.0", **members}).encode())

    def raw(self, message: bytes) -> None:
        self._send(message)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with something."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)


class HttpAnswer(Protocol):
    """The response to one request over HTTP."""

    def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a whole response."""

    def event(self, event: bytes) -> None:
        """Send an event of a stream."""

    def end(self) -> None:
        """End the stream."""

    def say_goodbye(self) -> None:
        """Take no more requests on this connection, where HTTP has a word for that."""


Trick = Callable[[Message, Channel], Awaitable[None]]


class Hostile:
    """What a server does, by method; and what came to it."""

    def __init__(self, modern: bool, **tricks: Trick) -> None:
        self.modern = modern
        self.tricks = {name.replace("_", "/"): trick for name, trick in tricks.items()}
        self.connections = 0
        self.messages: list[Message] = []
        self.stands = False
        """Whether it has a standing stream, in the legacy era over HTTP, which ends at once."""
        self.url = ""
        self.options: dict[str, Any] = {}
        self.channels: list[Channel] = []

    def asked(self, method: str) -> list[Message]:
        return [message for message in self.messages if message.get("method") == method]

    async def heard(self, message: Message, channel: Channel) -> None:
        self.messages.append(message)
        self.channels.append(channel)
        method = message.get("method", "")
        if "id" not in message or not method:
            return
        if method in self.tricks:
            await self.tricks[method](message, channel)
        elif method == "server/discover":
            if self.modern:
                channel.send(id=message["id"], result=DISCOVERED)
            else:
                channel.send(id=message["id"], error={"code": -32601, "message": "no"})
        elif method == "initialize":
            channel.send(id=message["id"], result=INITIALIZED)
        else:
            channel.send(id=message["id"], result={"resultType": "complete"})

    def stop(self) -> None:
        for channel in self.channels:
            for task in channel.tasks:
                task.cancel()


# Wires


@asynccontextmanager
async def _stream(hostile: Hostile, folder: Path, unix: bool) -> AsyncIterator[None]:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hostile.connections += 1
        channel = Channel(lambda message: writer.write(message + b"\n"), writer.close)
        try:
            while line := await reader.readline():
                await hostile.heard(json.loads(line), channel)
        except (OSError, ValueError, asyncio.CancelledError):
            pass
        writer.close()

    if unix:
        server: Any = await asyncio.start_unix_server(converse, folder / "hostile.sock")
        hostile.url = f"unix://{folder / 'hostile.sock'}"
    else:
        server = await asyncio.start_server(converse, "127.0.0.1", 0)
        hostile.url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield
    server.close()


class _WebSocket(asyncio.Protocol):
    def __init__(self, hostile: Hostile) -> None:
        self._hostile = hostile
        self._core = ServerProtocol(subprotocols=["mcp"])  # type: ignore[list-item]
        self._work: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._hostile.connections += 1
        self._channel = Channel(self._send, transport.close)

    def _send(self, message: bytes) -> None:
        if self._core.state is State.OPEN:
            self._core.send_text(message)
            self._flush()

    def _flush(self) -> None:
        self._transport.write(b"".join(self._core.data_to_send()))

    def data_received(self, data: bytes) -> None:
        self._core.receive_data(data)
        for event in self._core.events_received():
            if hasattr(event, "path"):
                self._core.send_response(self._core.accept(event))
            elif event.opcode is Opcode.TEXT:
                heard = self._hostile.heard(json.loads(bytes(event.data)), self._channel)
                self._work.add(asyncio.ensure_future(heard))
        self._flush()


@asynccontextmanager
async def _websocket(hostile: Hostile, folder: Path) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _WebSocket(hostile), "127.0.0.1", 0)
    hostile.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield
    server.close()


class _Exchange:
    """One HTTP/1.1 request, and its response: a status, or a stream of events that never ends."""

    def __init__(self, hostile: Hostile, line: str, body: bytes, writer: Any) -> None:
        self._hostile = hostile
        self._writer = writer
        self.method, self.target, _ = line.split(" ")
        self.message: Message = json.loads(body) if body else {}
        self._has_begun = False  # a stream has
        self.is_answered = False

    def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        whole = {"Content-Length": str(len(body)), "Content-Type": "text/plain", **named}
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in whole.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.is_answered = True

    def event(self, event: bytes) -> None:
        """Send an event, and before the first one the head."""
        if not self._has_begun:
            self._has_begun = True
            session = "" if self._hostile.modern else "Mcp-Session-Id: s-1\r\n"
            self._writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n%b\r\n" % session.encode()
            )
        self._writer.write(b"%x\r\n%b\r\n" % (len(event), event))

    def send(self, message: bytes) -> None:
        self.event(b"data: %b\n\n" % message)

    def end(self) -> None:
        """End the stream; the next request may follow."""
        self._writer.write(b"0\r\n\r\n")
        self.is_answered = True

    def say_goodbye(self) -> None:
        self.respond(503, Connection="close", Retry_After="0")

    def cut(self) -> None:
        self._writer.transport.abort()


Answering = Callable[[_Exchange], Awaitable[None]]


@asynccontextmanager
async def _http_server(hostile: Hostile, answer: Answering) -> AsyncIterator[None]:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hostile.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *lines = head.strip().split("\r\n")
                sizes = [each for each in lines if each.lower().startswith("content-length:")]
                size = int(sizes[0].partition(":")[2]) if sizes else 0
                exchange = _Exchange(hostile, line, await reader.readexactly(size), writer)
                await answer(exchange)
                if not exchange.is_answered:
                    await reader.read(1)
                    break  # the client has left
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    hostile.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    yield
    server.close()


def _http(hostile: Hostile) -> AbstractAsyncContextManager[None]:
    """Streamable HTTP."""

    async def answer(exchange: _Exchange) -> None:
        message = exchange.message
        if exchange.method == "GET":
            hostile.messages.append({"method": "GET"})
            if hostile.stands:  # a standing stream that ends at once, and wants the client back
                exchange.event(b"retry: 0\n\n")
                exchange.end()
            else:
                exchange.respond(405)
        elif exchange.method == "DELETE":
            exchange.respond(200)
        elif "id" not in message or "method" not in message:
            hostile.messages.append(message)
            exchange.respond(202)
        elif not hostile.modern and message["method"] == "server/discover":
            exchange.respond(400, b"no session")
        else:
            await hostile.heard(message, Channel(exchange.send, exchange.cut, exchange))

    return _http_server(hostile, answer)


def _http_sse(hostile: Hostile) -> AbstractAsyncContextManager[None]:
    """HTTP+SSE of 2024-11-05: one stream for everything the server says."""
    streams: list[_Exchange] = []

    async def answer(exchange: _Exchange) -> None:
        if exchange.method == "GET":
            exchange.event(b"event: endpoint\ndata: /messages\n\n")
            streams.append(exchange)
        elif exchange.target != "/messages":
            exchange.respond(405)
        else:
            exchange.respond(202)
            await hostile.heard(exchange.message, Channel(streams[-1].send, streams[-1].cut))

    return _http_server(hostile, answer)


class _Http2Answer:
    """The response on one stream of HTTP/2."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._has_begun = False

    @property
    def _is_over(self) -> bool:
        return self._asked.cancelled.done() or self._asked.host.gone.is_set()

    def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        if not self._is_over:
            named = {name.lower(): value for name, value in headers.items()}
            self._asked.head(status, end=True, **named)

    def event(self, event: bytes) -> None:
        if self._is_over:
            return
        if not self._has_begun:
            self._has_begun = True
            self._asked.head(200, content_type="text/event-stream")
        self._asked.host.h2.send_data(self._asked.number, event)
        self._asked.host.flush()

    def send(self, message: bytes) -> None:
        self.event(b"data: %b\n\n" % message)

    def end(self) -> None:
        if not self._is_over:
            self._asked.host.h2.end_stream(self._asked.number)
            self._asked.host.flush()

    def say_goodbye(self) -> None:
        self._asked.host.frames(GoAwayFrame(last_stream_id=0))


@asynccontextmanager
async def _http2(hostile: Hostile, certificate: Path) -> AsyncIterator[None]:
    async with http2_peer(certificate) as peer:

        @peer.on("/mcp")
        async def answer(asked: Asked) -> None:
            await asked.ended.wait()
            message = json.loads(asked.body) if asked.body else {}
            response = _Http2Answer(asked)
            if "id" not in message or "method" not in message:
                hostile.messages.append(message)
                response.respond(202 if message else 405)
            elif not hostile.modern and message["method"] == "server/discover":
                response.respond(400)
            else:
                channel = Channel(response.send, asked.host.transport.abort, response)
                await hostile.heard(message, channel)

        hostile.url = f"{peer.url}/mcp"
        hostile.options = {"tls": _trusting(certificate), "http2": True}
        yield
        hostile.connections = len(peer.connections)


def _trusting(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    context.set_alpn_protocols(["h2"])
    return context


ERAS = {"legacy": False, "modern": True}
WIRES = ("tcp", "unix", "ws", "http", "http+sse", "http2")


def serve(
    wire: str, hostile: Hostile, folder: Path, certificate: Path
) -> AbstractAsyncContextManager[None]:
    """Serve on a wire inside the block."""
    legacy_servers.clear()
    match wire:
        case "tcp" | "unix":
            return _stream(hostile, folder, wire == "unix")
        case "ws":
            return _websocket(hostile, folder)
        case "http":
            return _http(hostile)
        case "http+sse":
            return _http_sse(hostile)
        case _:
            return _http2(hostile, certificate)


class Relay:
    """A port in front of a server, which stops passing its bytes on when so many have passed.

    Args:
        host: The server.
        size: Bytes that pass from the server to the client, on all connections together.
        then: What happens after that: `stall`, `close`, `abort`, or `garble`.
    """

    def __init__(self, host: Hostile, size: int, then: str) -> None:
        self._host = host
        self._left = size
        self._then = then
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        url = urlsplit(self._host.url)
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self._port = url.port
        self._host.url = self._host.url.replace(f":{url.port}", f":{port}")
        yield
        server.close()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            near, far = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        for work in (self._pass_on(reader, far), self._cut(near, writer)):
            self._tasks.add(asyncio.ensure_future(work))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def _cut(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                writer.write(data[: self._left])
                self._left -= min(self._left, len(data))
                if self._left:
                    continue
                match self._then:
                    case "stall":
                        continue
                    case "abort":
                        writer.transport.abort()
                    case "garble":
                        writer.write(b"\xff\0}\r\n\r\n")
                        continue
                break
        writer.close()


# Time


class Time:
    """The time of one test, which it moves."""

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock

    async def ends_within(self, work: Awaitable[Any], seconds: float, what: str) -> Any:
        """Let time pass until work ends, and fail if that takes longer; return its result or error."""
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not task.done() and loop.time() < end:
            await self._clock.advance(STEP)
        for _ in range(_TURNS):
            if task.done():
                break
            await asyncio.sleep(0.001 if _ % 20 == 0 else 0)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
            raise AssertionError(f"{what} takes longer than {seconds:g} s")
        return task.exception() or task.result()


def run_with_time(test: Callable[[Time], Coroutine[Any, Any, None]]) -> None:
    """Run on a loop whose time is moved."""
    with MovableClock() as clock, asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(test(Time(clock)))
