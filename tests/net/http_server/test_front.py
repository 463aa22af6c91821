"""The connections of one endpoint: heads that are remembered, responses that leave together, the end."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcpearl.net.http_server import front as front_module
from mcpearl.net.http_server.front import HttpFront
from mcpearl.net.http_server.request import Request
from mcpearl.runtime.budget import Budget
from mcpearl.testing.clock import MovableClock
from tests.transports.raw_http import HANGS
from tests.waiting import eventually


class Echo:
    """An endpoint that answers with the body; `x-wait` has a request wait for `go`."""

    def __init__(self) -> None:
        self.heads: list[object] = []
        self.go = asyncio.Event()
        self.waiting = 0

    async def serve(self, request: Request) -> None:
        self.heads.append(request.head)
        if b"x-wait" in request.headers:
            self.waiting += 1
            await self.go.wait()
        body = (
            request.body
            if request.body is not None
            else await request.read(1_000_000, Budget().account().open("bodies"))
        )
        await request.respond(200, body)


@asynccontextmanager
async def serving(endpoint: Echo, **options: int) -> AsyncIterator[tuple[HttpFront, int]]:
    front = HttpFront(endpoint, str.encode, max_connections=options.pop("max_connections", 100))
    listening = await asyncio.get_running_loop().create_server(front.connect, "127.0.0.1", 0)
    try:
        yield front, listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await front.drain(1.0)


def post(body: bytes, *more: str) -> bytes:
    lines = ["POST /x HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, bytes]:
        async with asyncio.timeout(HANGS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            (length,) = (line[15:] for line in lines if line.startswith(b"content-length:"))
            return int(lines[0].split()[1]), await self.reader.readexactly(int(length))

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        self.writer.write(data)
        return await self.answer()


async def connect(port: int) -> Line:
    return Line(*await asyncio.open_connection("127.0.0.1", port))


async def test_a_head_that_comes_again_is_the_same_object() -> None:
    endpoint = Echo()
    async with serving(endpoint) as (front, port):
        one, other = await connect(port), await connect(port)
        for body in (b"first", b"again", b"third"):
            assert await one.ask(post(body)) == (200, body)
        assert await other.ask(post(b"other")) == (200, b"other")
        assert await one.ask(post(b"longer than that")) == (200, b"longer than that")
        first, again, third, others, longer = endpoint.heads
        assert first is again is third is others
        assert longer is not first
        assert len(front.heads) == 2


async def test_a_known_head_whose_body_comes_in_pieces_or_with_more_behind_it() -> None:
    async with serving(Echo()) as (front, port):
        line = await connect(port)
        assert await line.ask(post(b"12345")) == (200, b"12345")
        whole = post(b"abcde")
        line.writer.write(whole[:-3])
        await eventually(lambda: any(each.busy for each in front.connections))
        line.writer.write(whole[-3:])
        assert await line.answer() == (200, b"abcde")
        line.writer.write(post(b"fghij") + post(b"klmno") + post(b"pqrst"))
        for body in (b"fghij", b"klmno", b"pqrst"):
            assert await line.answer() == (200, body)
        assert await line.ask(post(b"uvwxy")) == (200, b"uvwxy")


async def test_a_known_head_in_the_middle_of_a_body_is_body() -> None:
    async with serving(Echo()) as (front, port):
        line = await connect(port)
        inner = post(b"12345")
        assert await line.ask(inner) == (200, b"12345")
        assert len(front.heads) == 1
        outer = post(b"x" * len(inner))
        line.writer.write(outer[: -len(inner)])
        await eventually(lambda: any(each.busy for each in front.connections))
        line.writer.write(inner)  # arrives alone, and looks like a request
        assert await line.answer() == (200, inner)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda body: b"\r\n" + post(body),
        lambda body: post(body, "Connection: close"),
        lambda body: post(body, "DPoP: proof"),
        lambda body: post(body, "X-Long: " + "x" * 3000),
        lambda body: post(body).replace(b"POST", b"PUT "),
        lambda body: post(b"5\r\n%b\r\n0\r\n\r\n" % body).replace(
            b"Content-Length: 15", b"Transfer-Encoding: chunked"
        ),
    ],
)
async def test_what_is_not_remembered(request_of) -> None:  # type: ignore[no-untyped-def]
    async with serving(Echo()) as (front, port):
        line = await connect(port)
        assert await line.ask(request_of(b"12345")) == (200, b"12345")
        assert not front.heads


async def test_blank_lines_before_a_known_head_do_not_keep_a_connection(
    clock: MovableClock,
) -> None:
    async with serving(Echo()) as (front, port):
        line = await connect(port)
        assert await line.ask(post(b"12345")) == (200, b"12345")
        line.writer.write(b"\r\n")
        (connection,) = front.connections
        await eventually(lambda: connection.has_begun)
        assert await line.ask(post(b"abcde")) == (200, b"abcde")
        assert len(front.heads) == 1
        await clock.advance(3 * front_module.KEEP_ALIVE)
        await eventually(lambda: not front.connections, within=HANGS)


async def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "_MAX_HEADS", 3)
    async with serving(Echo()) as (front, port):
        line = await connect(port)
        for size in range(1, 20):
            assert await line.ask(post(b"x" * size)) == (200, b"x" * size)
            assert len(front.heads) <= 3


async def test_responses_of_one_iteration_are_written_after_the_last_was_made() -> None:
    clients: list[socket.socket] = []
    answered: list[int] = []  # clients that had a response whenever a request was served

    class Seen(Echo):
        async def serve(self, request: Request) -> None:
            answered.append(len(select.select(clients, [], [], 0.0)[0]))
            await super().serve(request)

    async with serving(Seen()) as (front, port):
        lone = await connect(port)
        assert await lone.ask(post(b"12345")) == (200, b"12345")
        lone.writer.close()
        await eventually(lambda: not front.connections)
        clients += [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
        await eventually(lambda: len(front.connections) >= len(clients))
        answered.clear()
        for client in clients:
            client.sendall(post(b"12345"))
        await eventually(lambda: len(answered) >= len(clients))
        assert answered == [0] * len(clients)
        for client in clients:
            assert client.recv(1000).endswith(b"12345")
            client.close()


async def test_a_response_that_has_begun_is_not_followed_by_another() -> None:
    class Twice(Echo):
        async def serve(self, request: Request) -> None:
            await request.start(200, ())
            await request.write(b"part")
            await request.respond(503, b"sorry")

    async with serving(Twice()) as (_, port):
        line = await connect(port)
        line.writer.write(post(b"12345"))
        answer = await asyncio.wait_for(line.reader.read(), HANGS)
        assert answer.endswith(b"\r\n\r\n4\r\npart\r\n")


async def test_a_connection_made_while_draining_is_closed() -> None:
    endpoint = Echo()
    async with serving(endpoint) as (front, port):
        busy = await connect(port)
        busy.writer.write(post(b"12345", "X-Wait: 1"))
        await eventually(lambda: endpoint.waiting)
        draining = asyncio.create_task(front.drain(HANGS))
        await asyncio.sleep(0)
        late = await connect(port)  # its handshake took longer than the port was open
        assert await asyncio.wait_for(late.reader.read(), HANGS) == b""
        endpoint.go.set()
        assert await busy.answer() == (200, b"12345")
        await asyncio.wait_for(draining, HANGS)


async def test_one_connection_too_many() -> None:
    async with serving(Echo(), max_connections=1) as (_, port):
        one = await connect(port)
        assert await one.ask(post(b"12345")) == (200, b"12345")
        other = await connect(port)
        status, _ = await other.ask(post(b"12345"))
        assert status == 503
        assert await other.reader.read() == b""
        assert await one.ask(post(b"12345")) == (200, b"12345")


async def test_draining_waits_for_requests_and_closes_idle_connections() -> None:
    endpoint = Echo()
    async with serving(endpoint) as (front, port):
        idle, busy = await connect(port), await connect(port)
        assert await idle.ask(post(b"12345")) == (200, b"12345")
        busy.writer.write(post(b"12345", "X-Wait: 1"))
        await eventually(lambda: endpoint.waiting)
        draining = asyncio.create_task(front.drain(HANGS))
        assert await asyncio.wait_for(idle.reader.read(), HANGS) == b""
        assert not draining.done()
        endpoint.go.set()
        assert await busy.answer() == (200, b"12345")
        await asyncio.wait_for(draining, HANGS)
        assert not front.connections


async def test_draining_cancels_what_takes_too_long() -> None:
    endpoint = Echo()
    async with serving(endpoint) as (front, port):
        line = await connect(port)
        line.writer.write(post(b"12345", "X-Wait: 1"))
        await eventually(lambda: endpoint.waiting)
        await asyncio.wait_for(front.drain(0.05), HANGS)
        assert await line.answer() == (503, b"The server is shutting down")
        assert not front.tasks
