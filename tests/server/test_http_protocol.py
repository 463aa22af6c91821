"""What happens on an HTTP/1.1 connection before and after the endpoint, byte by byte."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl import Context, Server
from mcpearl.transports.http_endpoint import Endpoint
from tests.transports.raw_http import BOTH, HANGS, Headers, Raw, Response, modern, response, serving


def make_app() -> Server:
    app = Server("raw", grace=1.0)
    gate = asyncio.Event()

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def wait() -> str:
        await gate.wait()
        return "waited"

    @app.tool
    async def release() -> str:
        gate.set()
        return "released"

    @app.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    @app.tool
    async def length(text: str) -> int:
        return len(text)

    return app


@pytest.fixture
async def client() -> AsyncIterator[Raw]:
    async with serving(make_app()) as raw:
        yield raw


class Line:
    """One connection, used for several requests."""

    def __init__(
        self, client: Raw, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._client = client
        self.reader = reader
        self.writer = writer

    def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> bytes:
        """The bytes of a call; `more` are headers, and `id`."""
        id = more.pop("id", 1)
        params = {"name": tool, "arguments": arguments or {}}
        headers, body = modern("tools/call", params, id, progressToken=1)
        data = json.dumps(body).encode()
        whole: Headers = {
            "Content-Type": "application/json",
            "Accept": BOTH,
            "Content-Length": str(len(data)),
            **headers,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return self._client.head("POST", whole) + data

    async def answer(self) -> Response:
        async with asyncio.timeout(HANGS):
            answer = await response(self.reader, self.writer)
            if not answer.is_stream:
                await answer.read()
            return answer

    async def result(self) -> Any:
        """What the next call gave."""
        return (await self.answer()).json["result"]["structuredContent"]["result"]

    async def rest(self) -> bytes:
        """Whatever comes until the server hangs up."""
        return await asyncio.wait_for(self.reader.read(), HANGS)


@pytest.fixture
async def line(client: Raw) -> AsyncIterator[Line]:
    reader, writer = await client.connect()
    yield Line(client, reader, writer)
    writer.close()


async def test_requests_that_come_together_are_answered_in_order(line: Line) -> None:
    calls = [line.call("add", {"a": number, "b": 1}, id=number) for number in range(200)]
    line.writer.write(b"".join(calls))
    for number in range(200):
        answer = await line.answer()
        assert answer.json["id"] == number
        assert answer.json["result"]["structuredContent"] == {"result": number + 1}


async def test_what_comes_behind_a_slow_one_waits_for_it(client: Raw, line: Line) -> None:
    line.writer.write(line.call("wait") + line.call("add", {"a": 1, "b": 2}))
    await line.writer.drain()
    line.writer.write(line.call("add", {"a": 3, "b": 4}))
    assert (await client.call("release")).status == 200
    assert [await line.result() for _ in range(3)] == ["waited", 3, 7]


async def test_a_request_cut_anywhere(line: Line) -> None:
    whole = line.call("add", {"a": 20, "b": 22})
    for place in range(1, len(whole)):
        line.writer.write(whole[:place])
        await line.writer.drain()
        await asyncio.sleep(0)
        line.writer.write(whole[place:])
        assert await line.result() == 42


async def test_a_request_byte_by_byte(line: Line) -> None:
    for byte in line.call("add", {"a": 20, "b": 22}):
        line.writer.write(bytes([byte]))
        await line.writer.drain()
    assert await line.result() == 42


async def test_a_large_body_behind_a_slow_request(client: Raw, line: Line) -> None:
    text = "x" * 2_000_000
    line.writer.write(line.call("wait") + line.call("length", {"text": text}))
    line.writer.write(line.call("add", {"a": 1, "b": 2}))
    assert (await client.call("release")).status == 200
    assert [await line.result() for _ in range(3)] == ["waited", 2_000_000, 3]


async def test_a_body_in_chunks(client: Raw, line: Line) -> None:
    head, _, data = line.call("add", {"a": 1, "b": 2}).partition(b"\r\n\r\n")
    head = b"\r\n".join(each for each in head.split(b"\r\n") if b"Content-Length" not in each)
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, data[at : at + 1]) for at in range(len(data)))
    line.writer.write(head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    line.writer.write(line.call("add", {"a": 3, "b": 4}))
    assert [await line.result() for _ in range(2)] == [3, 7]


async def test_a_body_that_waits_to_be_asked_for(line: Line) -> None:
    head, _, data = line.call("add", {"a": 1, "b": 2}, Expect="100-continue").partition(b"\r\n\r\n")
    line.writer.write(head + b"\r\n\r\n")
    asked = await asyncio.wait_for(line.reader.readuntil(b"\r\n\r\n"), HANGS)
    assert asked == b"HTTP/1.1 100 Continue\r\n\r\n"
    line.writer.write(data)
    assert await line.result() == 3


async def test_a_request_that_is_refused_before_its_body_came(line: Line) -> None:
    data = b"x" * 500_000
    head = line._client.head("POST", {"Content-Type": "text/plain", "Content-Length": "500000"})
    line.writer.write(head)
    assert (await line.answer()).status == 415
    line.writer.write(data + line.call("add", {"a": 1, "b": 2}))
    assert await line.result() == 3


async def test_a_connection_that_is_to_close_closes(line: Line) -> None:
    line.writer.write(line.call("add", {"a": 1, "b": 2}, Connection="close"))
    answer = await line.answer()
    assert answer.headers["connection"] == "close"
    assert answer.json["result"]["structuredContent"] == {"result": 3}
    assert await line.rest() == b""


async def test_nothing_is_served_on_a_connection_that_closes(line: Line) -> None:
    line.writer.write(
        line.call("add", {"a": 1, "b": 2}, Connection="close") + line.call("add", {"a": 3, "b": 4})
    )
    assert await line.result() == 3
    assert await line.rest() == b""


@pytest.mark.parametrize("tool", ["add", "steps"])
async def test_a_client_of_http_1_0(line: Line, tool: str) -> None:
    """It knows neither chunks nor that connections stay open."""
    arguments = {"a": 1, "b": 2} if tool == "add" else {}
    line.writer.write(line.call(tool, arguments).replace(b"HTTP/1.1", b"HTTP/1.0"))
    head, _, body = (await line.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK") and b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert (b'{"result":3}' if tool == "add" else b'"result":"done"') in body


async def test_a_head_request_has_no_body_in_its_answer(line: Line) -> None:
    line.writer.write(line._client.head("HEAD", {}) + line.call("add", {"a": 1, "b": 2}))
    head = await asyncio.wait_for(line.reader.readuntil(b"\r\n\r\n"), HANGS)
    assert head.startswith(b"HTTP/1.1 405")
    assert await line.result() == 3


async def test_a_header_given_twice_is_a_list(line: Line) -> None:
    twice = line.call("add", {"a": 1, "b": 2}).replace(
        b"Mcp-Method: tools/call\r\n", b"Mcp-Method: tools/call\r\nmcp-method: tools/list\r\n"
    )
    line.writer.write(twice)
    answer = await line.answer()
    assert (answer.status, answer.code) == (400, -32020)
    assert "tools/call, tools/list" in answer.json["error"]["message"]


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
async def test_an_upgrade_there_is_none_for(line: Line, protocol: str) -> None:
    """Some clients offer to speak something newer with every first request, and send its body."""
    call = line.call("add", {"a": 1, "b": 2}, Upgrade=protocol, Connection="Upgrade")
    for _ in range(2):
        for place in range(1, len(call), 50):
            line.writer.write(call[:place])
            await line.writer.drain()
            await asyncio.sleep(0)
            line.writer.write(call[place:])
            assert await line.result() == 3
    line.writer.write(line.call("add", {"a": 3, "b": 4}))
    assert await line.result() == 7


@pytest.mark.parametrize("target", ["*", "http://127.0.0.1/mcp", "//", "/mcp%2f%ff", "mcp"])
async def test_a_strange_target(client: Raw, target: str) -> None:
    answer = await client.send(f"OPTIONS {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.status in (204, 400, 404)


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00", b"GET /mcp HTTP/9.9\r\n\r\n", b"\0" * 99]
)
async def test_what_is_not_http(line: Line, garbage: bytes) -> None:
    line.writer.write(garbage)
    assert (await line.rest()).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_an_endpoint_that_fails_says_so_and_costs_one_connection(
    client: Raw, line: Line, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> None:
        raise ValueError("a mistake of ours")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "mcpearl.http"):
        patch.setattr(Endpoint, "_respond", fail)
        line.writer.write(line.call("add", {"a": 1, "b": 2}))
        answer = await line.answer()
        assert (answer.status, answer.code) == (500, -32603)
        assert "a mistake" not in answer.json["error"]["message"]
        assert await line.rest() == b""
    assert "a mistake of ours" in caplog.text
    assert (await client.call("add", {"a": 1, "b": 2})).status == 200


async def test_an_idle_connection_is_closed_and_a_used_one_is_not() -> None:
    async with serving(make_app()) as client:
        connections = [await client.connect() for _ in range(2)]
        busy, idle = (Line(client, *connection) for connection in connections)
        for line in (busy, idle):
            line.writer.write(line.call("add", {"a": 1, "b": 2}))
            assert await line.result() == 3
        ended = asyncio.create_task(line.rest())
        while not ended.done():  # five seconds, as uvicorn has it
            busy.writer.write(busy.call("add", {"a": 1, "b": 2}))
            assert await busy.result() == 3
            await asyncio.wait((ended,), timeout=0.5)
        assert ended.result() == b""
        busy.writer.write(busy.call("add", {"a": 1, "b": 2}))
        assert await busy.result() == 3
        busy.writer.close()
        idle.writer.close()
