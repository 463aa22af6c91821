"""HTTP/2 against Node's implementation, which has nothing in common with ours."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcpearl.net.http_client.dial import tls_context
from mcpearl.net.http_client.exchange import ExchangeFailed
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.tls import Tls
from tests.net.http_client.test_http2 import ask, failure, fetch, whole
from tests.waiting import eventually

SERVER = Path(__file__).parent / "node_http2.mjs"
NODE = Path(sys.executable).parent / "node"


@asynccontextmanager
async def node(certificate: Path, settings: str = "{}") -> AsyncIterator[ConnectionPool]:
    """Run a server in Node, and connect to it."""
    process = await asyncio.create_subprocess_exec(
        *map(str, (NODE, SERVER, certificate, settings)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    port = int(await asyncio.wait_for(process.stdout.readline(), 30))
    wire = ConnectionPool(f"https://127.0.0.1:{port}", tls=tls_context(Tls(certificate)))
    try:
        yield wire
    finally:
        wire.close()
        process.stdin.close()
        await process.wait()


async def test_bodies_both_ways(certificate: Path) -> None:
    async with node(certificate) as wire:
        large = await asyncio.gather(*(fetch(wire, "/large") for _ in range(4)))
        assert all(body == b"y" * 3_000_000 for body in large)
        sizes = await asyncio.gather(*(fetch(wire, "/count", b"x" * 700_000) for _ in range(4)))
        assert sizes == [b"700000"] * 4
        assert len(wire._shared) == 1


async def test_small_windows(certificate: Path) -> None:
    async with node(certificate, '{"initialWindowSize": 100, "maxConcurrentStreams": 2}') as wire:
        sizes = await asyncio.gather(*(fetch(wire, "/count", b"x" * 20_000) for _ in range(6)))
        assert sizes == [b"20000"] * 6
        assert len(wire._shared) == 3


async def test_settings_that_change_on_the_way(certificate: Path) -> None:
    async with node(certificate) as wire:
        upload = asyncio.ensure_future(fetch(wire, "/count", b"x" * 3_000_000))
        assert await fetch(wire, "/settings") == b"changed"
        assert await upload == b"3000000"
        assert await fetch(wire, "/count", b"x" * 3_000_000) == b"3000000"
        assert wire._shared[0].max_streams == 3


async def test_pings(certificate: Path) -> None:
    async with node(certificate) as wire:
        assert await fetch(wire, "/pings") == b"pinged"


async def test_many_headers_announcements_and_trailers(certificate: Path) -> None:
    async with node(certificate) as wire:
        stream = await ask(wire, "/headers")
        assert stream.headers["x-19"] == "z" * 2000
        assert await whole(stream) == b"many headers"
        assert await fetch(wire, "/continue") == b"with trailers"


async def test_a_refused_stream(certificate: Path) -> None:
    async with node(certificate) as wire:
        error = await failure(fetch(wire, "/refused"))
        assert "REFUSED_STREAM" in error.reason
        assert not error.sent
        assert await fetch(wire) == b"hello"


async def test_a_stream_cut_in_the_middle(certificate: Path) -> None:
    async with node(certificate) as wire:
        stream = await ask(wire, "/cut")
        assert await stream.chunk() == b"part"
        error = await failure(whole(stream))
        assert "INTERNAL_ERROR" in error.reason
        assert error.sent
        assert await fetch(wire) == b"hello"


@pytest.mark.parametrize(
    ("path", "said"), [("/goaway", b"after goaway"), ("/closing", b"after close")]
)
async def test_a_server_that_takes_its_leave(certificate: Path, path: str, said: bytes) -> None:
    async with node(certificate) as wire:
        before = await wire.acquire()  # so that the connection is used by two
        before.send("GET", "/hang", [])
        assert await fetch(wire, path) == said
        assert await fetch(wire) == b"hello"
        assert len(wire._shared) == 1
        before.release()


async def is_open(wire: ConnectionPool) -> bool:
    return await fetch(wire, "/cancelled") == b"open"


async def test_a_session_destroyed_under_its_streams(certificate: Path) -> None:
    async with node(certificate) as wire:
        beside = asyncio.ensure_future(ask(wire, "/hang"))
        await eventually(lambda: is_open(wire))
        for error in (await failure(fetch(wire, "/destroyed")), await failure(beside)):
            assert isinstance(error, ExchangeFailed)
            assert error.sent
        assert await fetch(wire) == b"hello"


async def test_giving_up_is_told(certificate: Path) -> None:
    async with node(certificate) as wire:
        stream = await wire.acquire()
        stream.send("GET", "/hang", [])
        await eventually(lambda: is_open(wire))
        stream.release()

        async def is_closed() -> bool:
            return not await is_open(wire)

        await eventually(is_closed)
        assert await fetch(wire, "/cancelled") == b"8"  # CANCEL
        assert len(wire._shared) == 1
