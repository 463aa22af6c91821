"""What happens on an HTTP/1.1 connection before and after the endpoint, byte by byte."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl import Context, Limits, Server
from mcpearl.net.http_server.front import KEEP_ALIVE
from mcpearl.net.http_server.http1_connection import HttpServerConnection
from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.testing.clock import MovableClock
from mcpearl.transports.http_server.endpoint import Endpoint
from tests.transports.raw_http import BOTH, HANGS, Headers, Raw, Response, modern, response, serving
from tests.waiting import eventually, turns


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

    @app.tool
    async def text(size: int) -> str:
        return "x" * size

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


async def test_a_client_of_http_1_0_is_not_asked_for_its_body(line: Line) -> None:
    call = line.call("add", {"a": 1, "b": 2}, Expect="100-continue")
    head, _, data = call.replace(b"HTTP/1.1", b"HTTP/1.0").partition(b"\r\n\r\n")
    line.writer.write(head + b"\r\n\r\n")
    await turns()
    line.writer.write(data)
    answer = await line.rest()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"100 Continue" not in answer


async def test_a_declined_upgrade_stays_in_its_version(line: Line) -> None:
    """A stream of a client of HTTP/1.0 comes without chunks, whatever else it offered."""
    call = line.call("steps", Upgrade="h2c", Connection="Upgrade")
    line.writer.write(call.replace(b"HTTP/1.1", b"HTTP/1.0"))
    head, _, body = (await line.rest()).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head and b"connection: close" in head
    assert b'"result":"done"' in body


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


@pytest.mark.parametrize("more", [{}, {"Upgrade": "h2c", "Connection": "Upgrade"}])
@pytest.mark.parametrize("hosts", ["", "Host: localhost\r\nhost: localhost\r\n"])
async def test_a_request_names_one_host(line: Line, hosts: str, more: dict[str, str]) -> None:
    call = line.call("add", {"a": 1, "b": 2}, **more)
    named = f"Host: 127.0.0.1:{line._client.port}\r\n".encode()
    assert named in call
    line.writer.write(call.replace(named, hosts.encode()))
    answer = await line.rest()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"Host header" in answer


async def test_a_client_of_http_1_0_need_not_name_a_host() -> None:
    async with serving(make_app(), allowed_hosts=frozenset({"*"})) as client:
        answer = await client.send(b"PUT /mcp HTTP/1.0\r\n\r\n")
        assert answer.status == 405


@pytest.mark.parametrize(
    "codings",
    [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
    ],
)
async def test_an_encoding_that_is_not_read_here(line: Line, codings: str) -> None:
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{codings}\r\n\r\n"
    line.writer.write(head.encode() + b"2\r\n{}\r\n0\r\n\r\n")
    assert (await line.rest()).startswith(b"HTTP/1.1 501 Not Implemented\r\n")


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://evil.example/mcp", "localhost", 421),
        ("http://localhost/mcp", "evil.example", 405),
        ("http://[::1]:8000/mcp", "evil.example", 405),
        ("http://localhost@evil.example/mcp", "localhost", 400),
        ("//evil.example/mcp", "localhost", 404),
    ],
)
async def test_the_host_in_the_target_counts(
    client: Raw, target: str, host: str, status: int
) -> None:
    answer = await client.send(f"PUT {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.status == status


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
        patch.setattr(Endpoint, "_post", fail)
        line.writer.write(line.call("add", {"a": 1, "b": 2}))
        answer = await line.answer()
        assert (answer.status, answer.code) == (500, -32603)
        assert "a mistake" not in answer.json["error"]["message"]
        assert await line.rest() == b""
    assert "a mistake of ours" in caplog.text
    assert (await client.call("add", {"a": 1, "b": 2})).status == 200


async def test_an_idle_connection_is_closed_and_a_used_one_is_not(clock: MovableClock) -> None:
    async with serving(make_app()) as client:
        connections = [await client.connect() for _ in range(2)]
        busy, idle = (Line(client, *connection) for connection in connections)
        for line in (busy, idle):
            line.writer.write(line.call("add", {"a": 1, "b": 2}))
            assert await line.result() == 3
        ended = asyncio.create_task(line.rest())
        for _ in range(2 * round(KEEP_ALIVE)):
            busy.writer.write(busy.call("add", {"a": 1, "b": 2}))
            assert await busy.result() == 3
            await clock.advance(1)
        assert await ended == b""
        busy.writer.write(busy.call("add", {"a": 1, "b": 2}))
        assert await busy.result() == 3
        busy.writer.close()
        idle.writer.close()


# What must not get out of order


async def test_garbage_behind_a_request_does_not_get_ahead_of_its_answer(
    client: Raw, line: Line
) -> None:
    line.writer.write(line.call("wait") + line.call("add", {"a": 1, "b": 2}) + b"\0garbage")
    await line.writer.drain()
    assert (await client.call("release")).status == 200
    assert [await line.result() for _ in range(2)] == ["waited", 3]
    assert (await line.rest()).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_garbage_in_a_body_ends_its_request_and_the_connection(line: Line) -> None:
    head = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    line.writer.write(line._client.head("POST", head) + b'5\r\n{"a":\r\n')
    await turns()
    line.writer.write(b"no chunk\r\n")
    assert (await line.rest()).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_what_follows_a_request_that_closes_is_not_looked_at(client: Raw, line: Line) -> None:
    line.writer.write(line.call("wait", Connection="close"))
    line.writer.write(b"x" * 200_000)
    await line.writer.drain()
    assert (await client.call("release")).status == 200
    answer = await line.answer()
    assert answer.json["result"]["structuredContent"] == {"result": "waited"}


async def test_connections_too_many_cost_the_others_nothing() -> None:
    async with serving(make_app(), max_connections=2) as client:
        first, second = [Line(client, *await client.connect()) for _ in range(2)]
        for line in (first, second):
            line.writer.write(line.call("add", {"a": 1, "b": 2}))
            assert await line.result() == 3
        further = [Line(client, *await client.connect()) for _ in range(2)]
        for line in further:
            line.writer.write(line.call("add", {"a": 1, "b": 2}))
            assert (await line.rest()).startswith(b"HTTP/1.1 503 ")
        further = [Line(client, *await client.connect()) for _ in range(2)]  # and say nothing
        await turns()
        first.writer.write(first.call("wait") + first.call("add", {"a": 3, "b": 4}))
        second.writer.write(second.call("release") + second.call("add", {"a": 5, "b": 6}))
        assert [await first.result() for _ in range(2)] == ["waited", 7]
        assert [await second.result() for _ in range(2)] == ["released", 11]
        for line in (first, *further):
            line.writer.close()
        second.writer.write(second.call("add", {"a": 1, "b": 2}))
        assert await second.result() == 3


async def test_trailers_are_no_headers(client: Raw, line: Line) -> None:
    session = await client.initialize()
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    head = client.head(
        "POST",
        {"Content-Type": "application/json", "Accept": BOTH, "Transfer-Encoding": "chunked"},
    )
    chunk = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    trailer = f"Mcp-Session-Id: {session.id}\r\nOrigin: http://evil.example\r\n\r\n".encode()
    line.writer.write(head + chunk + trailer)
    answer = await line.answer()
    assert answer.status == 400
    assert "Mcp-Session-Id header is missing" in answer.json["error"]["message"]


async def test_a_header_that_is_given_again_and_again(line: Line) -> None:
    line.writer.write(b"GET /mcp HTTP/1.1\r\n" + b"a: xxxxxxxx\r\n" * 5000 + b"\r\n")
    assert (await line.rest()).startswith(b"HTTP/1.1 431 ")


# Upgrades


async def test_connect_is_refused(line: Line) -> None:
    line.writer.write(b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await line.rest()).startswith(b"HTTP/1.1 405 ")


async def test_many_declined_upgrades_at_once(line: Line) -> None:
    call = line.call("add", {"a": 1, "b": 2}, Upgrade="h2c", Connection="Upgrade")
    line.writer.write(call * 300)
    for _ in range(300):
        assert await line.result() == 3


async def test_a_declined_upgrade_changes_nothing_else(line: Line) -> None:
    call = line.call("add", {"a": 1, "b": 2}, Upgrade="h2c", Connection="close, Upgrade")
    line.writer.write(call)
    answer = await line.answer()
    assert answer.headers["connection"] == "close"
    assert await line.rest() == b""


HANDSHAKE: Headers = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mcp",
}
PING = b"\x89\x80\0\0\0\0"


async def test_what_comes_right_behind_a_handshake_is_not_lost() -> None:
    async with serving(make_app(), websocket="/ws") as client:
        reader, writer = await client.connect()
        writer.write(client.head("GET", HANDSHAKE, "/ws") + PING)
        async with asyncio.timeout(HANGS):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            assert await reader.readexactly(2) == b"\x8a\x00"
        writer.close()


async def test_a_handshake_is_a_get() -> None:
    async with serving(make_app(), websocket="/ws") as client:
        reader, writer = await client.connect()
        writer.write(client.head("POST", HANDSHAKE, "/ws"))
        first = await asyncio.wait_for(reader.readline(), HANGS)
        assert not first.startswith(b"HTTP/1.1 101 ")
        writer.close()


async def test_a_handshake_behind_requests_costs_them_nothing() -> None:
    async with serving(make_app(), websocket="/ws") as client:
        line = Line(client, *(await client.connect()))
        line.writer.write(line.call("wait") + line.call("add", {"a": 1, "b": 2}))
        line.writer.write(client.head("GET", HANDSHAKE, "/ws"))
        await line.writer.drain()
        assert (await client.call("release")).status == 200
        assert [await line.result() for _ in range(2)] == ["waited", 3]
        assert (await line.rest()).startswith(b"HTTP/1.1 400 ")


# Bounds


async def test_what_waits_for_an_answer_is_bounded(
    client: Raw, line: Line, monkeypatch: pytest.MonkeyPatch, clock: MovableClock
) -> None:
    """A client that goes on asking behind a slow call is no longer read."""
    seen: list[int] = []
    queue = HttpServerConnection._queue

    def counting(self: HttpServerConnection, visit: Http1Request) -> None:
        queue(self, visit)
        assert self._waiting is not None
        seen.append(len(self._waiting))

    monkeypatch.setattr(HttpServerConnection, "_queue", counting)
    call = line.call("wait")
    for _ in range(3000):
        line.writer.write(call)
        if line.writer.transport.get_write_buffer_size() > 100_000:
            break
    await eventually(lambda: seen)
    await clock.advance(5)
    assert max(seen) < 1500  # two pieces as they are read, at the most
    line.writer.transport.abort()


async def test_a_head_that_comes_to_no_end_behind_an_answer(clock: MovableClock) -> None:
    async with serving(make_app()) as client:
        line = Line(client, *(await client.connect()))
        line.writer.write(line.call("wait"))
        await line.writer.drain()
        await clock.advance(1)
        line.writer.write(b"GET /mcp HT")
        await clock.advance(1)
        clock.move(60)
        assert (await client.call("release")).status == 200
        (answer,) = await (await line.answer()).rest()
        assert answer["result"]["structuredContent"] == {"result": "waited"}

        def is_closed() -> bool:
            clock.move(10)
            return line.reader.at_eof()

        await eventually(is_closed)


async def test_an_answer_nobody_reads_does_not_keep_a_connection_for_ever() -> None:
    """Also one that fits into the buffers, so that nobody waits for it to be read."""
    state = asyncio.get_running_loop().create_future()

    class Seen(HttpServerConnection):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self.transport.get_extra_info("peername") == mine and not state.done():
                state.set_result(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcpearl.net.http_server.front.HttpServerConnection", Seen)
        async with serving(make_app(), stall_timeout=0.3) as client:
            with socket.socket() as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await asyncio.to_thread(peer.connect, ("127.0.0.1", client.port))
                mine = peer.getsockname()
                line = Line(client, None, None)  # type: ignore[arg-type]
                peer.sendall(line.call("text", {"size": 5_000_000}, Connection="close"))
                await asyncio.wait_for(state, HANGS)


# Streams


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_client_that_reads_slowly_gets_everything(era: str) -> None:
    """The handler waits for it; nothing is left out, and the answer comes."""
    app = Server("talker", grace=1.0, limits=Limits(max_outgoing=2_000_000))
    count, piece = 1500, "x" * 20_000

    @app.tool
    async def talk(ctx: Context) -> str:
        for number in range(count):
            await ctx.progress(number + 1, message=piece)
        return "done"

    async with serving(app) as client:
        if era == "modern":
            answer = await client.call("talk", progressToken=1)
        else:
            answer = await (await client.initialize()).use("talk", token=1)
        heard = []
        while (one := await answer.next()) is not None:
            heard.append(one)
            if len(heard) % 100 == 0:
                await turns()
        steps = [one["params"]["progress"] for one in heard[:-1]]
        assert steps == [*range(1, count + 1)]
        assert heard[-1]["result"]["content"][0]["text"] == "done"
        answer.close()


async def test_a_stream_that_was_sent_away_ends_once() -> None:
    """Whatever is said while its last part waits to be read belongs to whoever comes back."""
    app = Server("leaver", grace=1.0)
    gate, reached = asyncio.Event(), asyncio.Event()

    @app.tool
    async def leave(ctx: Context) -> str:
        await ctx.progress(1, message="x" * 3_000_000)
        ctx.close_stream(1000)
        reached.set()
        await gate.wait()
        await ctx.progress(2)
        return "done"

    async with serving(app) as client:
        session = await client.initialize()
        data = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "leave", "arguments": {}, "_meta": {"progressToken": 1}},
            }
        ).encode()
        reader, writer = await client.connect()
        writer.transport.pause_reading()
        head = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        writer.write(session.head("POST", {**head, "Accept": BOTH}) + data)
        await eventually(reached.is_set)
        gate.set()
        await turns()
        writer.transport.resume_reading()
        answer = await response(reader, writer)
        await answer.read()
        assert b"retry: 1000" in answer.body
        assert answer.body.count(b"notifications/progress") == 1
        line = Line(client, reader, writer)
        writer.write(session.head("DELETE", {}))
        assert (await line.answer()).status == 204
        writer.close()
