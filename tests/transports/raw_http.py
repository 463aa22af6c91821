"""A client made of raw HTTP: every header and byte of a request is the test's own."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcpearl import Server
from tests.ports import free_port

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
EVERYTHING: dict[str, Any] = {"sampling": {}, "roots": {}, "elicitation": {"form": {}, "url": {}}}
BOTH = "application/json, text/event-stream"
HANGS = 30.0  # seconds after which a test that waits gives up

Headers = dict[str, str | None]


def wrapped(text: str) -> str:
    """A header value in the Base64 sentinel."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def meta(**more: Any) -> dict[str, Any]:
    """The `_meta` of a modern request."""
    return {
        f"{PREFIX}protocolVersion": MODERN,
        f"{PREFIX}clientInfo": {"name": "raw", "version": "1"},
        f"{PREFIX}clientCapabilities": EVERYTHING,
        **more,
    }


def message(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    """A request, or a notification when the id is None."""
    whole: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        whole["id"] = id
    if params is not None:
        whole["params"] = params
    return whole


def modern(
    method: str, params: dict[str, Any] | None = None, id: Any = 1, **more: Any
) -> tuple[Headers, dict[str, Any]]:
    """The headers and the body of a modern request, in agreement. `more` goes into `_meta`."""
    whole = {**(params or {}), "_meta": meta(**more)}
    headers: Headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = whole.get("name", whole.get("uri"))
    if name is not None:
        headers["Mcp-Name"] = name
    return headers, message(method, whole, id)


class Response:
    """A response whose body is read whole, or event by event."""

    def __init__(
        self,
        status: int,
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = b""
        self.comments = 0
        self._reader = reader
        self._writer = writer
        self._rest = b""  # of a stream: bytes that are no whole event yet

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        """The code of the JSON-RPC error in it."""
        return int(self.json["error"]["code"])

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    async def chunk(self) -> bytes:
        """The next part of a chunked body; empty at its end."""
        size = int((await self._reader.readline()).strip() or b"0", 16)
        data = await self._reader.readexactly(size)
        await self._reader.readline()
        return data

    async def read(self) -> None:
        if self.headers.get("transfer-encoding") == "chunked":
            while part := await self.chunk():
                self.body += part
        else:
            self.body = await self._reader.readexactly(int(self.headers.get("content-length", "0")))

    async def event(self) -> dict[str, str] | None:
        """The fields of the next event; None at the end of the stream."""
        async with asyncio.timeout(HANGS):
            while True:
                while b"\r\n\r\n" not in self._rest:
                    part = await self.chunk()
                    if not part:
                        assert self._rest == b""
                        return None
                    self._rest += part
                block, _, self._rest = self._rest.partition(b"\r\n\r\n")
                lines = block.decode().split("\r\n")
                fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
                if fields:
                    return fields
                self.comments += 1

    async def next(self) -> Any:
        """The next message of the stream; None at its end. Events without data are passed over."""
        while (event := await self.event()) is not None:
            if event.get("data", "").strip():
                return json.loads(event["data"])
        return None

    async def rest(self) -> list[Any]:
        """Every message until the stream ends."""
        found = []
        while (one := await self.next()) is not None:
            found.append(one)
        return found

    def close(self) -> None:
        """Hang up."""
        self._writer.transport.abort()


class Raw:
    """A client of the server on a port, with the headers it sends unless told otherwise."""

    def __init__(self, port: int, path: str = "/mcp") -> None:
        self.port = port
        self.path = path
        self.headers: Headers = {}

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def head(self, method: str, headers: Headers, path: str | None = None) -> bytes:
        """A request up to its body. A header that is None is left out."""
        whole: Headers = {"Host": f"127.0.0.1:{self.port}", **self.headers, **headers}
        lines = [f"{name}: {value}\r\n" for name, value in whole.items() if value is not None]
        return f"{method} {path or self.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")

    async def send(self, data: bytes) -> Response:
        """Send these bytes on a connection of their own; the response with its body unread."""
        reader, writer = await self.connect()
        writer.write(data)
        return await response(reader, writer)

    async def request(
        self, method: str, headers: Headers, body: bytes = b"", path: str | None = None
    ) -> Response:
        """The response, read whole unless it is a stream."""
        async with asyncio.timeout(HANGS):
            answer = await self.send(self.head(method, headers, path) + body)
            if not answer.is_stream:
                await answer.read()
                answer._writer.close()
            return answer

    async def post(self, body: Any, headers: Headers | None = None, **options: Any) -> Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        whole: Headers = {
            "Content-Type": "application/json",
            "Accept": BOTH,
            "Content-Length": str(len(data)),
            **(headers or {}),
        }
        return await self.request("POST", whole, data, **options)

    async def get(self, headers: Headers | None = None) -> Response:
        return await self.request("GET", {"Accept": "text/event-stream", **(headers or {})})

    async def delete(self, headers: Headers | None = None) -> Response:
        return await self.request("DELETE", headers or {})

    async def call(
        self, tool: str, arguments: dict[str, Any] | None = None, **more: Any
    ) -> Response:
        """Call a tool the modern way."""
        headers, body = modern("tools/call", {"name": tool, "arguments": arguments or {}}, **more)
        return await self.post(body, headers)

    async def initialize(self, version: str = LEGACY, **headers: str) -> "Session":
        """Begin a legacy session, up to its `initialized`."""
        session = Session(self.port, self.path)
        session.headers = {**headers}
        params = {
            "protocolVersion": version,
            "capabilities": EVERYTHING,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        opened = await session.post(message("initialize", params, 0))
        assert opened.status == 200, opened.body
        session.id = opened.headers["mcp-session-id"]
        session.headers |= {"Mcp-Session-Id": session.id, "MCP-Protocol-Version": version}
        done = await session.post(message("notifications/initialized", id=None))
        assert done.status == 202
        return session


class Session(Raw):
    """A client in a legacy session."""

    id: str

    async def ask(self, method: str, params: dict[str, Any] | None = None, id: Any = 1) -> Response:
        return await self.post(message(method, params, id))

    async def use(
        self, tool: str, arguments: dict[str, Any] | None = None, id: Any = 1, token: Any = None
    ) -> Response:
        """Call a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments or {}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return await self.ask("tools/call", params, id)


async def response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Response:
    """Read a response up to its body."""
    async with asyncio.timeout(HANGS):
        head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return Response(int(first.split()[1]), headers, reader, writer)


spread: Callable[..., AbstractAsyncContextManager[int]] | None = None
"""Set by tests that serve an application several times; returns the port of what is in front."""


@asynccontextmanager
async def serving(app: Server, **options: Any) -> AsyncIterator[Raw]:
    """Serve on a free port of this machine, as `app.run("http")` would."""
    if spread is not None:
        async with spread(app, **options) as balanced:
            yield Raw(balanced)
        return
    port = free_port()
    task = asyncio.create_task(app.serve("http", port=port, **options))
    client = Raw(port)
    try:
        await until_open(port, task)
        yield client
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until_open(port: int, task: "asyncio.Task[None]") -> None:
    """Wait until somebody listens there; whoever should may end first, and says why."""
    while not task.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return
    await task
