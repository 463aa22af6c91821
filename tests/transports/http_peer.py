"""An HTTP server written by hand, to answer in ways no honest server would, and its client."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec

from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.framing import Frame, FrameError
from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_client.transport import HttpTransport
from mcpearl.transports.transport import ClientReceiver, Outgoing
from tests.ports import free_port
from tests.waiting import eventually

EVERYTHING = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "logging": {},
}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": EVERYTHING,
    "ttlMs": 0,
    "cacheScope": "private",
}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": EVERYTHING,
    "serverInfo": {"name": "by hand", "version": "1"},
}


class Request:
    """One request as it came, and the means to answer it."""

    def __init__(self, line: str, headers: dict[str, str], body: bytes, peer: "HttpPeer") -> None:
        self.method, self.target, _ = line.split(" ")
        self.headers = headers
        self.body = body
        self.message: dict[str, Any] = json.loads(body) if body else {}
        self.peer = peer
        self.gone = asyncio.Event()
        """Set when the client closed the connection."""
        self.writer: asyncio.StreamWriter

    @property
    def rpc(self) -> str:
        return self.message.get("method", "")

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def respond(
        self,
        status: int,
        body: bytes | str | dict[str, Any] = b"",
        kind: str = "application/json",
        **headers: str,
    ) -> None:
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        elif isinstance(body, str):
            body = body.encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
        if body:
            lines.append(f"Content-Type: {kind}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode() + body)

    async def result(self, result: dict[str, Any], **headers: str) -> None:
        answer = {"jsonrpc": "2.0", "id": self.message["id"], "result": result}
        await self.respond(200, answer, **headers)

    async def stream(self, **headers: str) -> None:
        """Begin to answer with events."""
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, data: bytes | str) -> None:
        data = data.encode() if isinstance(data, str) else data
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, message: dict[str, Any], id: str = "") -> None:
        head = f"id: {id}\n" if id else ""
        await self.chunk(f"{head}data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n")

    async def event_result(self, result: dict[str, Any], id: str = "") -> None:
        await self.event({"id": self.message["id"], "result": result}, id)

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        self.writer.transport.abort()


Answer = Callable[[Request], Awaitable[None]]


class HttpPeer:
    """Answers each request with a function: by JSON-RPC method, or by HTTP method."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: dict[str, Answer] = {}
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int, tls: ssl.SSLContext | None) -> None:
        port = port or free_port()  # which may be taken again after it was given up
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Hang up on everybody and be there for nobody."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def on(self, name: str) -> Callable[[Answer], Answer]:
        def register(answer: Answer) -> Answer:
            self.answers[name] = answer
            return answer

        return register

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def asked(self, name: str) -> list[Request]:
        """Every request with this JSON-RPC or HTTP method."""
        return [request for request in self.requests if name in (request.rpc, request.method)]

    async def until_asked(self, name: str, times: int = 1) -> list[Request]:
        await eventually(lambda: len(self.asked(name)) >= times)
        return self.asked(name)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *lines = head.strip().split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (each.partition(":") for each in lines)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                request = Request(line, headers, body, self)
                request.writer = writer
                self.requests.append(request)
                watch = asyncio.ensure_future(_watch(reader, request))
                try:
                    await (self.answers.get(request.rpc) or self.answers[request.method])(request)
                finally:
                    watch.cancel()
                if writer.is_closing() or request.gone.is_set():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _watch(reader: asyncio.StreamReader, request: Request) -> None:
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.005)
    request.gone.set()


@asynccontextmanager
async def http_peer(port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpPeer]:
    """Run a peer that takes notifications, and has no streams and no sessions."""
    peer = HttpPeer()

    @peer.on("GET")
    async def get(request: Request) -> None:
        await request.respond(405)

    @peer.on("DELETE")
    async def delete(request: Request) -> None:
        await request.respond(200)

    @peer.on("POST")
    async def post(request: Request) -> None:
        await request.respond(202)

    await peer.start(port, tls)
    try:
        yield peer
    finally:
        await peer.stop()


def modern(peer: HttpPeer) -> None:
    """Let the peer be a server of the modern era."""

    @peer.on("server/discover")
    async def discover(request: Request) -> None:
        await request.result(DISCOVERED)


def legacy(peer: HttpPeer, session: str | None = "s-1", **members: Any) -> None:
    """Let the peer be a server of the legacy era."""

    @peer.on("server/discover")
    async def discover(request: Request) -> None:
        await request.respond(400, "Bad Request: no session", kind="text/plain")

    @peer.on("initialize")
    async def initialize(request: Request) -> None:
        headers = {} if session is None else {"Mcp_Session_Id": session}
        await request.result({**INITIALIZED, **members}, **headers)


class Listener(ClientReceiver):
    """A receiver that keeps what it is told, request by request."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.broken: list[str] = []
        self.failures: dict[int, ConnectionLost] = {}
        self.losses: list[Exception | None] = []
        self._news = asyncio.Event()

    def received(self, frames: Sequence[Frame | Envelope]) -> None:
        for frame in frames:
            if isinstance(frame, FrameError):
                self.broken.append(frame.reason)
            else:
                whole = frame if isinstance(frame, bytes) else msgspec.json.encode(frame)
                self.messages.append(json.loads(whole))
        self._news.set()

    def failed(self, request_id: int, error: ConnectionLost) -> None:
        self.failures[request_id] = error
        self._news.set()

    def unsent(self, messages: list[bytes]) -> None:
        raise AssertionError("HTTP tells of each request by itself")

    def held(self, request_id: int | str | None, holding: bool) -> None: ...

    def ended(self) -> None:
        raise AssertionError("HTTP has no half-closed connections")

    def lost(self, reason: Exception | None) -> None:
        self.losses.append(reason)
        self._news.set()

    def writable(self, flowing: bool) -> None:
        raise AssertionError("there is nothing to hold back")

    async def until(self, happened: Callable[[], Any], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not happened():
                self._news.clear()
                await self._news.wait()

    async def answer(self, id: int) -> dict[str, Any]:
        """Wait for the answer to a request."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self.messages if each.get("id") == id and "method" not in each]

        await self.until(lambda: found() or id in self.failures)
        assert id not in self.failures, self.failures
        (only,) = found()
        return only

    async def failure(self, id: int) -> Any:
        """Wait for the failure of a request."""
        await self.until(lambda: id in self.failures)
        return self.failures[id]


MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def modern_request(id: int, method: str, **params: Any) -> bytes:
    members = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": MODERN_META}}
    members["params"] |= params
    return json.dumps(members).encode()


def request(id: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def notification(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


class Wire(HttpTransport):
    """A transport that is told of each message what a `ClientConnection` would tell it."""

    listener: Listener
    modern = False

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        members = json.loads(message)
        method, params = members.get("method"), members.get("params", {})
        if method is not None and "id" in members:
            self.modern = "_meta" in params
        super().send(
            message,
            Outgoing(
                method,
                members.get("id") if method is not None else None,
                _as_struct(params),
                self._version_of(method, params),
                self.modern,
                params.get("requestId") if method == "notifications/cancelled" else None,
            ),
        )

    def _version_of(self, method: str | None, params: dict[str, Any]) -> str | None:
        if self.modern or method == "initialize":
            return params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion")
        results = (message.get("result", {}) for message in self.listener.messages)
        return next(
            (each["protocolVersion"] for each in results if "protocolVersion" in each), None
        )


def _as_struct(params: dict[str, Any]) -> SimpleNamespace:
    """Params as the client has them: attributes, and the arguments of a tool as raw JSON."""
    arguments = params.get("arguments", msgspec.UNSET)
    return SimpleNamespace(
        name=params.get("name"),
        uri=params.get("uri"),
        task_id=params.get("taskId"),
        arguments=arguments and msgspec.json.encode(arguments),
    )


@asynccontextmanager
async def wired(peer: HttpPeer, **options: Any) -> AsyncIterator[tuple[Wire, Listener]]:
    """Connect a transport to a peer, with nothing above it."""
    limits = options.pop("limits", Limits())
    transport = Wire(options.pop("url", peer.url), limits, **options)
    listener = transport.listener = Listener()
    await transport.open(listener)
    try:
        yield transport, listener
    finally:
        await transport.close()
        assert len(listener.losses) == 1
        assert not transport._tasks


async def in_session(transport: HttpTransport, listener: Listener, **params: Any) -> None:
    """Start a legacy session."""
    transport.send(request(0, "initialize", protocolVersion="2025-11-25", **params))
    await listener.answer(0)
    transport.send(notification("notifications/initialized"))
