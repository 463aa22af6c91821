"""HTTP/1.1 as the server reads it, with the endpoint and a server behind it.

Responses are well-formed HTTP, and their bodies JSON-RPC. The same requests are answered alike however
their bytes are cut. When the client has left, nothing of it stays: no connection, no request.
"""

import json
from typing import Any

import httptools

from mcpearl import Context, Server
from mcpearl.net.http_server.front import HttpFront
from mcpearl.net.sse import EventReader, ServerSentEvent
from mcpearl.server.serving.http import _internal_error
from mcpearl.server.serving.http_host import HttpHost
from mcpearl.transports.http_server.endpoint import Endpoint
from mcpearl.transports.http_server.settings import EndpointSettings
from tests.fuzz.target import Target, cuts, require
from tests.fuzz.wire import Wire, run, settle

_REFUSALS = (400, 405, 431, 501, 503)  # after which the connection says nothing more


def _make_app() -> Server:
    app = Server("fuzzed")

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def steps(count: int, ctx: Context) -> str:
        for step in range(min(count, 3)):
            await ctx.progress(step)
        return "done"

    @app.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    @app.prompt
    async def brief(city: str) -> str:
        return city

    return app


APP = _make_app()
SETTINGS = EndpointSettings(http_sse=True)


class Answers:
    """The responses on one connection, read by a strict parser."""

    def __init__(self, data: bytes) -> None:
        self.found: list[tuple[int, dict[str, str], bytes]] = []
        self.status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self.whole = True  # the last one is complete
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._headers, self._body, self.whole = {}, bytearray(), False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self.whole = True
        if status != 100:
            self.found.append((status, self._headers, bytes(self._body)))


async def _exchange(parts: list[bytes]) -> bytes:
    async with APP.running():
        endpoint = Endpoint(HttpHost(APP), SETTINGS, gate=None, lifespan=APP.running)
        async with endpoint.running():
            front = HttpFront(endpoint, _internal_error, max_connections=2)
            connection = front.connect()
            wire = Wire(connection)
            await wire.feed(parts)
            written = bytes(wire.written)
            await wire.hang_up()
            require(not front.connections, "a connection stays")
            require(not front.tasks, "a request stays")
            await settle()
    return written


def check(data: bytes) -> None:
    data = data[: 16 * 1024]
    expected = None
    for parts in cuts(data, is_slow=True):
        written = run(_exchange(parts))
        if b"HEAD " in data:
            continue  # a response to HEAD announces a body that does not come
        answers = Answers(written).found
        for answer in answers:
            _look_at(*answer)
        # An endpoint that sees a request before its end may answer what turns out to be malformed.
        refused = [status for status, _, _ in answers if status in _REFUSALS]
        shown = [(status, _without_ids(body)) for status, _, body in answers]
        if refused:
            continue
        expected = shown if expected is None else expected
        require(shown == expected, f"a cut changes the answers: {expected} {shown}")


def _look_at(status: int, headers: dict[str, str], body: bytes) -> None:
    require(200 <= status < 600 and status != 500, f"the status is {status}")
    kind = headers.get("content-type", "")
    if kind.startswith("application/json") and body:
        _look_at_messages(body)
    elif kind.startswith("text/event-stream"):
        for event in EventReader(1024 * 1024).feed(body):
            require(isinstance(event, ServerSentEvent), "an event is too large")
            if event.event == "message" and event.data:
                _look_at_messages(event.data)


def _look_at_messages(body: bytes) -> None:
    value: Any = json.loads(body)
    for message in value if isinstance(value, list) else [value]:
        require(message["jsonrpc"] == "2.0", "an answer is not JSON-RPC 2.0")
        kinds = [name for name in ("result", "error", "method") if name in message]
        require(len(kinds) == 1, "an answer is neither a result nor an error")


def _without_ids(body: bytes) -> bytes:
    """Leave out what is drawn at random: ids of sessions and of events."""
    return b"\n".join(line for line in body.splitlines() if not line.startswith((b"id:", b":")))


def read(data: bytes) -> None:
    run(_exchange([data[start : start + 1024] for start in range(0, len(data), 1024)]))


WORDS = (
    b"POST /mcp HTTP/1.1\r\n",
    b"GET /mcp HTTP/1.1\r\n",
    b"GET /sse HTTP/1.1\r\n",
    b"POST /messages?session_id=",
    b"DELETE /mcp HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"Host: 127.0.0.1\r\n",
    b"Content-Length: 2\r\n\r\n{}",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Expect: 100-continue\r\n",
    b"Content-Type: application/json\r\n",
    b"Accept: application/json, text/event-stream\r\n",
    b"Mcp-Protocol-Version: 2025-11-25\r\n",
    b"Mcp-Session-Id: ",
    b"Mcp-Method: tools/call\r\n",
    b"Last-Event-ID: 1\r\n",
    b"Origin: null\r\n",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"2\r\n{}\r\n",
    b"HTTP/1.0\r\n",
)
TARGET = Target("http-server", check, WORDS, read)
