"""Serving with granian: HTTP/2 and HTTP/1.1 over TLS, and everything that ends in order."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcpearl import Client, ConnectionLost, Context, Server
from mcpearl.net.http_client.dial import tls_context
from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.tls import Tls
from mcpearl.server.serving.wires import Http
from tests.ports import free_port
from tests.transports.raw_http import modern, serving
from tests.waiting import eventually

ERAS = ["2026-07-28", "2025-11-25"]


class Marks:
    """What handlers noticed."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go = asyncio.Event()
        self.lifespan: list[str] = []


def make_app(marks: Marks, **options: Any) -> Server:
    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        marks.lifespan.append("up")
        yield
        marks.lifespan.append("down")

    app = Server("of granian", lifespan=lifespan, **options)

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def steps(count: int, ctx: Context) -> str:
        for step in range(count):
            await ctx.progress(step + 1, count)
        return "done"

    @app.tool
    async def hang() -> str:
        marks.begun.set()
        try:
            await marks.go.wait()
        except asyncio.CancelledError:
            marks.cancelled.set()
            raise
        return "went on"

    return app


@pytest.fixture
def marks() -> Marks:
    return Marks()


@asynccontextmanager
async def granian(app: Server, certificate: Path) -> AsyncIterator[str]:
    async with serving(app, server="granian", certificate=str(certificate)) as raw:
        yield f"https://127.0.0.1:{raw.port}/mcp"


@asynccontextmanager
async def up(app: Server, certificate: Path) -> AsyncIterator[tuple[str, "asyncio.Task[None]"]]:
    """Serve in a task the test may end."""
    port = free_port()
    work = app.serve("http", server="granian", port=port, certificate=str(certificate))
    task = asyncio.create_task(work)
    wire = ConnectionPool(f"https://127.0.0.1:{port}", tls=tls_context(Tls(certificate)))

    async def reached() -> bool:
        with contextlib.suppress(ExchangeFailed):
            await wire.reach()
        return bool(wire._shared)

    await eventually(reached)
    wire.close()
    try:
        yield f"https://127.0.0.1:{port}/mcp", task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def is_refused(url: str) -> bool:
    """Whether a server takes no connections any more."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


def client(url: str, certificate: Path, **options: Any) -> Client:
    return Client(url, tls=Tls(certificate), **options)


async def text(client: Client, tool: str, **arguments: Any) -> str:
    return (await client.call_tool(tool, arguments)).content[0].text


@pytest.mark.parametrize("http2", [True, False])
@pytest.mark.parametrize("era", ERAS)
async def test_calls(marks: Marks, certificate: Path, era: str, http2: bool) -> None:
    async with granian(make_app(marks), certificate) as url:
        async with client(url, certificate, protocol=era, http2=http2) as mine:
            assert await text(mine, "echo", text="ä" * 100_000) == "ä" * 100_000
            answers = await asyncio.gather(*(text(mine, "echo", text=str(n)) for n in range(64)))
            assert answers == [str(n) for n in range(64)]
            seen: list[float] = []
            done = await mine.call_tool(
                "steps", {"count": 20}, on_progress=lambda progress: seen.append(progress.progress)
            )
            assert done.content[0].text == "done"
            assert seen == list(range(1, 21))
        assert marks.lifespan == ["up"]
    assert marks.lifespan == ["up", "down"]


@pytest.mark.parametrize("http2", [True, False])
@pytest.mark.parametrize("era", ERAS)
async def test_giving_up_cancels_the_handler(
    marks: Marks, certificate: Path, era: str, http2: bool
) -> None:
    async with (
        granian(make_app(marks), certificate) as url,
        client(url, certificate, protocol=era, http2=http2) as mine,
    ):
        call = asyncio.ensure_future(mine.call_tool("hang"))
        await asyncio.wait_for(marks.begun.wait(), 30)
        call.cancel()
        await asyncio.wait_for(marks.cancelled.wait(), 30)
        assert await text(mine, "echo", text="still there") == "still there"


async def test_a_client_that_vanishes_cancels_its_calls(marks: Marks, certificate: Path) -> None:
    async with granian(make_app(marks), certificate) as url:
        headers, message = modern("tools/call", {"name": "hang"})
        wire = ConnectionPool(url, tls=tls_context(Tls(certificate)))
        stream = await ask(wire, headers, message)
        await asyncio.wait_for(marks.begun.wait(), 30)
        wire._shared[0].drop()
        await asyncio.wait_for(marks.cancelled.wait(), 30)
        stream.release()
        wire.close()


async def ask(wire: ConnectionPool, headers: Any, message: Any) -> HttpExchange:
    stream = await wire.acquire()
    fixed = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
    ]
    stream.send("POST", "/mcp", [*fixed, *headers.items()], json.dumps(message).encode())
    return stream


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_may_finish_when_the_server_ends(
    marks: Marks, certificate: Path, era: str
) -> None:
    app = make_app(marks, grace=5.0)
    async with (
        up(app, certificate) as (url, task),
        client(url, certificate, protocol=era) as mine,
    ):
        call = asyncio.ensure_future(text(mine, "hang"))
        await asyncio.wait_for(marks.begun.wait(), 30)
        task.cancel()
        await eventually(lambda: is_refused(url))
        assert marks.lifespan == ["up"]
        marks.go.set()
        assert await call == "went on"
        await asyncio.wait([task], timeout=30)
        assert marks.lifespan == ["up", "down"]


async def test_a_call_that_does_not_finish_is_cancelled(marks: Marks, certificate: Path) -> None:
    app = make_app(marks, grace=0.2)
    async with up(app, certificate) as (url, task), client(url, certificate) as mine:
        call = asyncio.ensure_future(mine.call_tool("hang"))
        await asyncio.wait_for(marks.begun.wait(), 30)
        task.cancel()
        await asyncio.wait_for(marks.cancelled.wait(), 30)
        await asyncio.wait([task, call], timeout=30)
        assert task.done()
        assert call.done()
        assert marks.lifespan == ["up", "down"]


async def test_streams_end_in_order(marks: Marks, certificate: Path) -> None:
    app = make_app(marks)
    async with up(app, certificate) as (url, task), client(url, certificate) as mine:
        changes = mine.listen(tools=True)
        async with changes, asyncio.timeout(30):
            app.add_tool(lambda: "late", name="late")
            await anext(aiter(changes))
            task.cancel()
            async for _ in changes:
                pass
        await asyncio.wait([task], timeout=30)
        assert marks.lifespan == ["up", "down"]


SCRIPT = """
import asyncio, sys
from mcpearl import Context, Server

app = Server("of a process")

@app.tool
async def wait(seconds: float, ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(seconds)
    return "waited"

app.run("http", server="granian", port=int(sys.argv[1]), certificate=sys.argv[2])
"""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_calls_finish(tmp_path: Path, certificate: Path, stop: int) -> None:
    script = tmp_path / "server.py"
    script.write_text(SCRIPT)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, script, str(port), str(certificate)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "MCPEARL_LOG_LEVEL": "WARNING"},
    )
    try:
        mine = client(f"https://127.0.0.1:{port}/mcp", certificate, http2=True)

        async def entered() -> bool:
            try:
                await mine.__aenter__()
            except ConnectionLost:
                return False
            return True

        await eventually(entered, 60)
        begun = asyncio.Event()
        call = asyncio.ensure_future(
            mine.call_tool("wait", {"seconds": 0.6}, on_progress=lambda _: begun.set())
        )
        await asyncio.wait_for(begun.wait(), 30)
        process.send_signal(stop)
        assert (await asyncio.wait_for(call, 30)).content[0].text == "waited"
        output, _ = await asyncio.to_thread(process.communicate, timeout=30)
        await mine.__aexit__(None, None, None)
        assert process.returncode == 0
        assert output == b""
    finally:
        process.kill()
        process.wait()


# What it says when it cannot


async def test_a_port_that_is_taken(marks: Marks, certificate: Path) -> None:
    async with granian(make_app(marks), certificate) as url:
        port = int(url.split(":")[2].split("/")[0])
        other = make_app(Marks())
        for front in ("granian", "mcpearl"):
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port}"):
                await other.serve("http", server=front, port=port)


async def test_without_granian(marks: Marks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "granian.server.embed", None)
    with pytest.raises(RuntimeError, match=r'install "mcpearl\[granian\]"'):
        await make_app(marks).serve("http", server="granian", port=free_port())


async def test_a_websocket_beside_the_endpoint(marks: Marks) -> None:
    async with serving(make_app(marks), server="granian", websocket="/ws") as raw:
        async with Client(f"ws://127.0.0.1:{raw.port}/ws") as mine:
            assert await text(mine, "echo", text="by socket") == "by socket"
        async with Client(f"http://127.0.0.1:{raw.port}/mcp") as mine:
            assert await text(mine, "echo", text="by request") == "by request"


async def test_an_unknown_server_is_refused(marks: Marks) -> None:
    with pytest.raises(ValueError, match="choose 'mcpearl' or 'granian'"):
        await make_app(marks).serve("http", server="apache")


async def test_two_that_share_a_port(marks: Marks, certificate: Path) -> None:
    async with serving(
        make_app(marks), server="granian", certificate=str(certificate), reuse_port=True
    ) as raw:
        second = Marks()
        other = asyncio.create_task(
            make_app(second).serve(
                Http(server="granian", port=raw.port, certificate=str(certificate), reuse_port=True)
            )
        )
        await eventually(lambda: second.lifespan == ["up"])
        for _ in range(10):
            async with client(f"https://127.0.0.1:{raw.port}/mcp", certificate) as mine:
                assert await text(mine, "echo", text="either") == "either"
        assert not other.done()
        other.cancel()
        await asyncio.wait([other])


# Bad input


async def test_a_head_that_is_too_large(
    marks: Marks, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("h2.settings.Settings.max_header_list_size", None)  # what it asked for
    headers, message = modern("tools/call", {"name": "echo", "arguments": {"text": "x"}})
    large = {**headers, **{f"x-large-{n}": "x" * 7000 for n in range(12)}}
    async with granian(make_app(marks), certificate) as url:
        for http2 in (True, False):
            wire = ConnectionPool(url, tls=tls_context(Tls(certificate), http2=http2))
            for given, status in ((large, 431), (headers, 200)):
                stream = await ask(wire, given, message)
                await asyncio.wait_for(stream.answered(), 30)
                assert stream.status == status
                stream.release()
            wire.close()


async def test_forged_hosts_and_origins(marks: Marks, certificate: Path) -> None:
    async with granian(make_app(marks), certificate) as url:
        wire = ConnectionPool(url, tls=tls_context(Tls(certificate)))
        headers, message = modern("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        stream = await ask(wire, {**headers, "Origin": "https://evil.example"}, message)
        await stream.answered()
        assert stream.status == 403
        stream.release()
        await wire.reach()
        wire._shared[-1]._authority = "evil.example"
        wire._shared.reverse()
        stream = await ask(wire, headers, message)
        await stream.answered()
        assert stream.status == 421
        stream.release()
        wire.close()
