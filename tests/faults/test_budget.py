"""Attacks on the memory of a server, one for each kind of thing it holds for its clients.

The attacker comes from an address of its own and takes all it can. The budget is never exceeded, the
attacker is refused in clear words, a client beside it is served, and when the attacker has left,
everything is given back.
"""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpearl import Client, Context, Limits, Observer, Server
from mcpearl.server.serving.wires import Tcp, WebSocket
from tests.ports import free_port
from tests.transports.raw_http import BOTH, Raw, message, modern, serving, until_open
from tests.waiting import at_rest, eventually

MIB = 1024 * 1024
TOTAL = 32 * MIB
ATTACKER = "127.0.0.2"  # the clients beside it are at 127.0.0.1
WORDS = "for this client and may hold no more"


class Watcher(Observer):
    def __init__(self) -> None:
        self.told: list[str] = []
        self.counters: Any = None

    def started(self, counters: Any) -> None:
        self.counters = counters

    def bound_reached(self, bound: str, detail: str) -> None:
        self.told.append(f"{bound}: {detail}")


def make_app(total: int = TOTAL, **options: Any) -> Server:
    app = Server("held", max_held=total, **options)

    @app.tool
    async def echo(text: str) -> int:
        return len(text)

    @app.tool
    async def large(size: int) -> str:
        return "x" * size

    @app.tool
    async def wait(anything: Any = None) -> None:
        await asyncio.Event().wait()

    @app.tool
    async def steps(ctx: Context, size: int) -> str:
        for n in range(size // 10_000):
            await ctx.progress(n, message="y" * 10_000)
        return "done"

    app.add_resource("wide://{+rest}", lambda rest: rest, name="wide")
    return app


class Attacker:
    """Sockets at an address of its own, which it may leave alone."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(
        self, buffer: int | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        line = socket.socket()
        if buffer is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        line.setblocking(False)
        line.bind((ATTACKER, 0))
        await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=line, limit=1024)
        self.lines.append((reader, writer))
        return reader, writer

    async def send(self, data: bytes, buffer: int | None = None) -> asyncio.StreamReader:
        reader, writer = await self.connect(buffer)
        writer.write(data)
        return reader

    def leave(self) -> None:
        for _, writer in self.lines:
            writer.transport.abort()
        self.lines.clear()


@asynccontextmanager
async def attacked(
    app: Server, lasting: bool = False, **options: Any
) -> AsyncIterator[tuple[Raw, Attacker]]:
    """Serve over HTTP; in the end the attacker leaves, and nothing may be held for it.

    What is `lasting`, such as a session, is given back when the server ends.
    """
    async with serving(app, **options) as client:
        attacker = Attacker(client.port)
        try:
            yield client, attacker
            attacker.leave()
            if not lasting:
                await given_back(app)
        finally:
            attacker.leave()
    await given_back(app)


async def given_back(app: Server) -> None:
    budget = app.core.budget
    await eventually(lambda: budget.held == 0, otherwise=lambda: dict(budget.by_kind))
    assert not any(budget.by_kind.values())
    assert not budget.pressed


async def keeps_within(app: Server, during: Awaitable[Any]) -> Any:
    """Wait for something; the budget must hold at every look meanwhile."""
    task = asyncio.ensure_future(during)
    budget, most = app.core.budget, 0
    while not task.done():
        most = max(most, budget.held)
        await asyncio.sleep(0.001)
    assert most <= budget.total
    return task.result()


async def serves(client: Raw, size: int = 1000) -> None:
    answer = await client.call("echo", {"text": "t" * size})
    assert answer.status == 200, answer.body
    assert answer.json["result"]["structuredContent"] == {"result": size}
    answer = await client.call("large", {"size": size})
    assert len(answer.body) > size


def posting(client: Raw, body: bytes, headers: dict[str, Any], length: int | None = None) -> bytes:
    """A POST whose body may be incomplete."""
    whole = {
        "Content-Type": "application/json",
        "Accept": BOTH,
        "Content-Length": str(len(body) if length is None else length),
        **headers,
    }
    return client.head("POST", whole) + body


def calling(client: Raw, tool: str, arguments: dict[str, Any]) -> bytes:
    headers, body = modern("tools/call", {"name": tool, "arguments": arguments})
    return posting(client, json.dumps(body).encode(), headers)


async def status_of(reader: asyncio.StreamReader) -> tuple[int, str]:
    """The status and the body of a response; 0 when the connection was cut."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split()[1]), head + (await reader.readexactly(length)).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, ""


# HTTP


async def test_bodies_that_never_end() -> None:
    watcher = Watcher()
    app = make_app(observer=watcher)
    async with attacked(app) as (client, attacker):
        headers, _ = modern("tools/call", {"name": "echo"})
        for _ in range(60):
            await attacker.send(posting(client, b"[" * MIB, headers, 4 * MIB))
        budget = app.core.budget
        first = await keeps_within(app, asyncio.wait_for(first_answer(attacker), timeout=30))
        status, text = first
        assert status == 503
        assert "retry-after: 1\r\n" in text
        assert WORDS in text
        assert budget.by_kind["bodies"] > 6 * MIB
        assert budget.held <= TOTAL // 4
        assert watcher.counters()["bytes_held"] == budget.held
        assert watcher.counters()["bytes_held_bodies"] == budget.by_kind["bodies"]
        assert any(told.startswith("max_held: bodies: The server holds") for told in watcher.told)
        await serves(client, 2 * MIB)
        refused = await status_of(await attacker.send(calling(client, "echo", {"text": "t"})))
        assert refused[0] == 503, "while it holds so much, even its small requests are refused"
        assert WORDS in refused[1]


async def first_answer(attacker: Attacker) -> tuple[int, str]:
    waiting = [asyncio.ensure_future(status_of(reader)) for reader, _ in attacker.lines]
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in rest:
        each.cancel()
    await asyncio.wait(rest)
    return next(iter(done)).result()


async def test_answers_that_are_not_read() -> None:
    app = make_app(2 * TOTAL)
    async with attacked(app) as (client, attacker):

        async def ask() -> None:
            for _ in range(30):
                await attacker.send(calling(client, "large", {"size": 6 * MIB}), buffer=4096)
                await asyncio.sleep(0.01)

        await keeps_within(app, ask())
        assert app.core.budget.by_kind["answers"] > 6 * MIB
        assert app.core.budget.held <= TOTAL // 2
        await serves(client, 2 * MIB)
        refused = await status_of(await attacker.send(calling(client, "echo", {"text": "t"})))
        assert refused[0] == 503
        assert WORDS in refused[1]


async def test_large_messages_that_are_worked_on() -> None:
    app = make_app()
    async with attacked(app) as (client, attacker):
        readers = [
            await attacker.send(calling(client, "wait", {"anything": "t" * MIB})) for _ in range(20)
        ]
        answers = [asyncio.ensure_future(status_of(reader)) for reader in readers]
        await eventually(lambda: sum(each.done() for each in answers) >= 10)
        assert {each.result()[0] for each in answers if each.done()} == {503}
        assert 0 < app.core.budget.held <= TOTAL // 4
        await serves(client, MIB)
        for each in answers:
            each.cancel()


async def test_small_messages_that_decode_to_much() -> None:
    app = make_app()
    async with attacked(app) as (client, attacker):
        dense: list[Any] = [{} for _ in range(100_000)]
        reader = await attacker.send(calling(client, "wait", {"anything": dense}))
        status, text = await status_of(reader)
        assert status == 503, "400 KB, which decode to some 10 MB"
        assert WORDS in text
        await serves(client, MIB)


async def test_requests_that_wait_behind_another() -> None:
    app = make_app(8 * MIB, grace=0.1)
    # The server does not notice that a client left whose requests it does not read.
    async with attacked(app, lasting=True) as (client, attacker):
        many = calling(client, "wait", {}) + 100 * calling(client, "echo", {"text": "t"})
        for _ in range(20):
            await attacker.send(many)
        await eventually(lambda: app.core.budget.by_kind.get("requests", 0) > MIB)
        assert app.core.budget.held <= 8 * MIB // 4
        await serves(client)


async def test_heads_that_never_end() -> None:
    app = make_app(2 * MIB)
    async with attacked(app) as (client, attacker):
        head = b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 10_000
        for _ in range(30):
            await attacker.send(head)
        status, text = await asyncio.wait_for(first_answer(attacker), timeout=30)
        assert status == 503
        assert WORDS in text
        assert app.core.budget.held <= 2 * MIB // 4
        await serves(client)


async def test_connections_by_the_hundred() -> None:
    app = make_app(4 * MIB)
    async with attacked(app) as (client, attacker):
        for _ in range(200):
            await attacker.connect()
        assert app.core.budget.by_kind["connections"] <= MIB
        reader, writer = attacker.lines[-1]
        writer.write(calling(client, "echo", {"text": "t"}))
        assert (await status_of(reader))[0] in (0, 503)
        await serves(client)


async def test_sessions_by_the_hundred() -> None:
    total = MIB
    app = make_app(total)
    async with attacked(app, lasting=True) as (client, attacker):
        session = await client.initialize()
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "many", "version": "1"},
        }
        begin = posting(client, json.dumps(message("initialize", hello, 1)).encode(), {})
        ids = []
        reader, writer = await attacker.connect()
        for _ in range(100):
            writer.write(begin)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert " 200 " in head
            await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
            ids.append(head.split("mcp-session-id: ")[1].split("\r\n")[0])
        assert app.core.budget.held <= total // 4 + 64 * 1024
        assert len(app.connections) < 40, "its oldest idle sessions made room for its next ones"
        assert (await session.ask("ping")).status == 200
        session.headers["Mcp-Session-Id"] = ids[0]
        assert (await session.ask("ping")).status == 404
        session.headers["Mcp-Session-Id"] = ids[-1]
        assert (await session.ask("ping")).status == 200


async def test_subscriptions_to_long_uris() -> None:
    app = make_app(4 * MIB)
    async with attacked(app) as (client, attacker):
        session = await client.initialize()
        answers = [
            (await session.ask("resources/subscribe", {"uri": f"wide://{n}/{'u' * 7000}"}, n)).json
            for n in range(100)
        ]
        refused = [each["error"]["message"] for each in answers if "error" in each]
        assert refused
        assert all(WORDS in text for text in refused)
        assert len(refused) < 60
        held = app.core.budget.by_kind["subscriptions"]
        assert 10 * 14_000 < held <= MIB
        reader = await attacker.send(calling(client, "echo", {"text": "t"}))
        assert (await status_of(reader))[0] == 200, "another address has a share of its own"
        await session.delete()
        assert app.core.budget.by_kind["subscriptions"] == 0


async def test_listening_to_long_uris() -> None:
    app = make_app(4 * MIB)
    async with attacked(app) as (client, attacker):
        uris = [f"wide://{n}/{'u' * 7000}" for n in range(20)]
        headers, body = modern(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
        )
        data = posting(client, json.dumps(body).encode(), headers)
        statuses = []
        for _ in range(8):
            head = await (await attacker.send(data)).readuntil(b"\r\n\r\n")
            statuses.append(int(head.split()[1]))
        assert set(statuses) == {200, 503}
        assert statuses.count(200) < 5
        assert app.core.budget.held <= MIB
        await serves(client)


async def test_history_fills_what_is_free_and_gives_way_to_requests() -> None:
    app = make_app(8 * MIB)
    async with attacked(app, lasting=True) as (client, attacker):
        for _ in range(6):
            session = await client.initialize()
            answer = await session.use("steps", {"size": 2_000_000}, token=1)
            await answer.rest()
            answer.close()
        kinds = app.core.budget.by_kind
        assert kinds["history"] > 5 * MIB
        assert app.core.budget.held <= 8 * MIB
        headers, _ = modern("tools/call", {"name": "echo"})
        for _ in range(3):
            await attacker.send(posting(client, b"[" * 500_000, headers, 4 * MIB))
        await eventually(lambda: kinds["bodies"] > 1_400_000)
        await serves(client, MIB)
        assert app.core.budget.held <= 8 * MIB


async def test_a_batch_that_waits_with_its_answers() -> None:
    app = make_app()
    async with attacked(app) as (client, _):
        session = await client.initialize("2025-03-26")
        calls = [
            message("tools/call", {"name": "large", "arguments": {"size": MIB}}, n)
            for n in range(20)
        ]
        waits = message("tools/call", {"name": "wait", "arguments": {}}, "last")
        asking = asyncio.create_task(session.post([*calls, waits]))
        await eventually(lambda: app.core.budget.by_kind.get("batches", 0) > 5 * MIB)
        assert app.core.budget.held <= TOTAL // 4
        cancel = {"requestId": "last"}
        await session.post(message("notifications/cancelled", cancel, None))
        answers = (await asking).json
        assert len(answers) == 20
        refused = [each["error"]["message"] for each in answers if "error" in each]
        assert 10 < len(refused) < 20
        assert "has no room to hold this answer" in refused[0]
        await session.delete()


async def test_events_that_are_not_read() -> None:
    app = make_app(8 * MIB)
    async with attacked(app) as (client, attacker):
        headers, body = modern(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["wide://x"]}}
        )
        data = posting(client, json.dumps(body).encode(), headers)
        for _ in range(10):
            await attacker.send(data, buffer=4096)
        await eventually(lambda: app.core.subscriptions.counts()["uris"] == 1)
        await eventually(lambda: len(app.connections) == 1)

        async def change() -> None:
            for _ in range(300):
                for _ in range(200):
                    app.notify_resource_updated("wide://x")
                await asyncio.sleep(0)

        await keeps_within(app, change())
        await serves(client)


# Sockets


@asynccontextmanager
async def on_socket(app: Server, wire: Any) -> AsyncIterator[Attacker]:
    task = asyncio.create_task(app.serve(wire))
    attacker = Attacker(wire.port)
    try:
        await until_open(wire.port, task)
        yield attacker
        attacker.leave()
        await given_back(app)
    finally:
        attacker.leave()
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def beside(wire: Any) -> AsyncIterator[Client]:
    scheme = "tcp" if isinstance(wire, Tcp) else "ws"
    async with Client(f"{scheme}://127.0.0.1:{wire.port}") as client:
        yield client


async def is_served(client: Client, size: int = 1000) -> None:
    result = await client.call_tool("echo", {"text": "t" * size})
    assert result.structured_content == {"result": size}


def request(tool: str, arguments: dict[str, Any], id: Any = 1) -> bytes:
    _, body = modern("tools/call", {"name": tool, "arguments": arguments}, id)
    return json.dumps(body).encode() + b"\n"


async def test_lines_that_never_end() -> None:
    app, wire = make_app(), Tcp(port=free_port())
    async with on_socket(app, wire) as attacker, beside(wire) as client:
        readers = [await attacker.send(b"[" * MIB) for _ in range(20)]
        refusal = await asyncio.wait_for(first_line(readers), 30)
        assert WORDS in json.loads(refusal)["error"]["message"]
        await eventually(lambda: app.core.budget.by_kind["messages"] > 4 * MIB)
        assert app.core.budget.held <= TOTAL // 4 + MIB
        await is_served(client, 2 * MIB)
        await client.close()


async def first_line(readers: list[asyncio.StreamReader]) -> bytes:
    waiting = [asyncio.ensure_future(reader.readline()) for reader in readers]
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in rest:
        each.cancel()
    await asyncio.wait(rest)
    return next(iter(done)).result()


async def test_lines_that_are_not_read() -> None:
    app, wire = make_app(), Tcp(port=free_port())
    async with on_socket(app, wire) as attacker, beside(wire) as client:

        async def ask() -> None:
            for _ in range(30):
                await attacker.send(request("large", {"size": 8 * MIB}), buffer=4096)
                await asyncio.sleep(0.01)

        await keeps_within(app, ask())
        await is_served(client, 2 * MIB)
        await client.close()


async def test_small_answers_that_are_not_read() -> None:
    app, wire = make_app(8 * MIB), Tcp(port=free_port())
    async with on_socket(app, wire) as attacker, beside(wire) as client:
        asks = b"".join(request("large", {"size": 9000}, n) for n in range(600))

        async def ask() -> None:
            for _ in range(10):
                await attacker.send(asks, buffer=4096)
            await at_rest(lambda: app.core.budget.held)

        await keeps_within(app, ask())
        assert MIB < app.core.budget.held <= 8 * MIB // 4 + MIB
        await is_served(client, 1000)
        await client.close()


async def test_calls_by_the_thousand() -> None:
    app, wire = make_app(8 * MIB), Tcp(port=free_port())
    async with on_socket(app, wire) as attacker, beside(wire) as client:
        calls = b"".join(request("wait", {}, n) for n in range(1000))
        readers = [await attacker.send(calls) for _ in range(5)]
        budget = app.core.budget
        for reader in readers:
            refusal = json.loads(await asyncio.wait_for(reader.readline(), 30))
            assert WORDS in refusal["error"]["message"]
            assert refusal["id"] in range(1000)
        await is_served(client)
        assert 60 < app.core.counters()["calls_in_flight"] < 400
        assert budget.held <= 8 * MIB // 4 + MIB
        await client.close()


async def test_large_calls_on_a_connection() -> None:
    app, wire = make_app(), Tcp(port=free_port())
    async with on_socket(app, wire) as attacker, beside(wire) as client:
        reader, writer = await attacker.connect()
        for n in range(5):
            writer.write(request("wait", {"anything": "t" * MIB}, n))
        writer.write(request("wait", {"anything": [{}] * 20_000}, "dense"))
        refusal = json.loads(await asyncio.wait_for(reader.readline(), 30))
        assert WORDS in refusal["error"]["message"]
        assert refusal["id"] == "dense"
        assert 5 * MIB < app.core.budget.by_kind["calls"] <= TOTAL // 4
        await is_served(client, MIB)
        for n in range(5):
            _, cancel = modern("notifications/cancelled", {"requestId": n}, None)
            writer.write(json.dumps(cancel).encode() + b"\n")
        writer.write(request("wait", {"anything": [{}] * 20_000}, "again"))
        await eventually(lambda: app.core.counters()["calls_in_flight"] == 1)
        await client.close()


async def test_messages_that_wait_behind_calls_in_hand() -> None:
    """What was read at once is held until there is room for its calls, however few calls are allowed."""
    app = make_app(8 * MIB, limits=Limits(max_in_flight=4))
    wire, finish = Tcp(port=free_port()), asyncio.Event()

    @app.tool
    async def hold(text: str) -> None:
        await finish.wait()

    async with on_socket(app, wire) as attacker, beside(wire) as client:
        calls = b"".join(request("hold", {"text": "t" * 1000}, n) for n in range(120))
        readers = [await attacker.send(calls) for _ in range(40)]
        refusal = await asyncio.wait_for(first_line(readers), 30)
        assert WORDS in json.loads(refusal)["error"]["message"]
        budget = app.core.budget
        assert budget.by_kind["messages"] > MIB // 4
        assert budget.held <= 8 * MIB // 4 + MIB
        await is_served(client)
        await client.close()
        finish.set()


HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mcp\r\n\r\n"
)


async def test_frames_that_are_not_read() -> None:
    app, wire = make_app(), WebSocket(port=free_port(), allowed_hosts=frozenset({"*"}))
    async with on_socket(app, wire) as attacker, beside(wire) as client:
        asked = request("large", {"size": 8 * MIB})
        frame = b"\x81\xfe" + len(asked).to_bytes(2, "big") + b"\0\0\0\0" + asked

        async def ask() -> None:
            for _ in range(12):
                reader, writer = await attacker.connect(buffer=4096)
                writer.write(HANDSHAKE)
                assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
                writer.write(frame)
                await asyncio.sleep(0.01)

        await keeps_within(app, ask())
        await is_served(client, 2 * MIB)
        await client.close()


STDIO = """
import asyncio
from mcpearl import Server

app = Server("held", max_held=8 * 1024 * 1024)


@app.tool
async def wait(anything: object = None) -> None:
    await asyncio.Event().wait()


app.run()
"""


@pytest.mark.parametrize("text", ["", "t" * 200_000], ids=["small", "large"])
async def test_calls_by_the_thousand_on_stdio(text: str) -> None:
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STDIO, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        arguments = {"anything": text} if text else {}
        for n in range(60 if text else 1000):
            server.stdin.write(request("wait", arguments, n))
        refusal = json.loads(await asyncio.wait_for(server.stdout.readline(), 30))
        assert WORDS in refusal["error"]["message"]
        server.stdin.write(
            json.dumps(modern("server/discover", {}, "still there")[1]).encode() + b"\n"
        )
        while (
            json.loads(await asyncio.wait_for(server.stdout.readline(), 30))["id"] != "still there"
        ):
            pass
    finally:
        server.kill()
        await server.wait()


async def test_frames_that_never_end() -> None:
    app, wire = make_app(), WebSocket(port=free_port(), allowed_hosts=frozenset({"*"}))
    async with on_socket(app, wire) as attacker, beside(wire) as client:
        frame = b"\x81\xff" + (8 * MIB).to_bytes(8, "big") + b"\0\0\0\0" + b"[" * MIB
        readers = []
        for _ in range(20):
            reader = await attacker.send(HANDSHAKE)
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            attacker.lines[-1][1].write(frame)
            readers.append(reader)
        refusal = await asyncio.wait_for(first_frame(readers), 30)
        assert b"for this client and may hold no more" in refusal
        assert app.core.budget.held <= TOTAL // 4 + MIB
        await is_served(client, MIB)
        await client.close()


async def first_frame(readers: list[asyncio.StreamReader]) -> bytes:
    waiting = [asyncio.ensure_future(reader.read(1000)) for reader in readers]
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in rest:
        each.cancel()
    await asyncio.wait(rest)
    return next(iter(done)).result()
