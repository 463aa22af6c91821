"""The wire below Streamable HTTP: TLS, proxies, connections kept and given up."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcpearl.net.http_client.dial import Dialer, tls_context
from mcpearl.net.http_client.exchange import ExchangeFailed
from mcpearl.net.http_client.http1 import format_head
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.http_client.urls import origin_of, target_of
from mcpearl.net.tls import Tls
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
from tests.transports.http_peer import HttpPeer, Request, http_peer
from tests.transports.proxies import proxy
from tests.waiting import eventually


def hello(peer: HttpPeer) -> None:
    @peer.on("GET")
    async def get(request: Request) -> None:
        await request.respond(200, f"hello from {request.target}", kind="text/plain")


async def fetch(wire: ConnectionPool, target: str = "/") -> bytes:
    connection = await wire.acquire()
    try:
        connection.send("GET", target, [])
        await connection.answered()
        body = b""
        while part := await connection.chunk():
            body += part
        return body
    finally:
        connection.release()


@asynccontextmanager
async def secure(certificate: Path, ask: bool = False) -> AsyncIterator[HttpPeer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate)
    async with http_peer(tls=context) as peer:
        hello(peer)
        yield peer


async def test_tls_with_a_certificate_of_ones_own(certificate: Path) -> None:
    async with secure(certificate) as peer:
        url = f"https://127.0.0.1:{peer.port}"
        for context in (
            tls_context(Tls(certificate)),
            ssl.create_default_context(cafile=certificate),
        ):
            wire = ConnectionPool(url, tls=context)
            assert await fetch(wire, "/a") == b"hello from /a"
            wire.close()


async def test_tls_with_a_certificate_nobody_knows(certificate: Path) -> None:
    async with secure(certificate) as peer:
        wire = ConnectionPool(f"https://127.0.0.1:{peer.port}", tls=tls_context(None))
        with pytest.raises(ExchangeFailed, match=r"cannot connect.*certificate") as caught:
            await fetch(wire)
        assert not caught.value.sent
    assert not peer.requests


async def test_tls_that_asks_who_the_client_is(certificate: Path) -> None:
    async with secure(certificate, ask=True) as peer:
        context = tls_context(Tls(certificate, certificate))
        wire = ConnectionPool(f"https://127.0.0.1:{peer.port}", tls=context)
        assert await fetch(wire) == b"hello from /"
        wire.close()


async def test_through_a_proxy(certificate: Path) -> None:
    async with http_peer() as peer, proxy() as (port, heads):
        hello(peer)
        wire = ConnectionPool(peer.url, proxy=f"http://me:p%40ss@127.0.0.1:{port}")
        assert await fetch(wire, "/a") == f"hello from http://127.0.0.1:{peer.port}/a".encode()
        wire.close()
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in heads[0]
    async with secure(certificate) as peer, proxy() as (port, heads):
        wire = ConnectionPool(
            f"https://127.0.0.1:{peer.port}",
            tls=tls_context(Tls(certificate)),
            proxy=f"http://127.0.0.1:{port}",
        )
        assert await fetch(wire, "/b") == b"hello from /b"
        assert await fetch(wire, "/c") == b"hello from /c"
        wire.close()
    assert [head.split("\r\n")[0] for head in heads] == [f"CONNECT 127.0.0.1:{peer.port} HTTP/1.1"]


async def test_a_proxy_that_refuses(certificate: Path) -> None:
    async with proxy(refuse=True) as (port, _):
        wire = ConnectionPool(
            "https://127.0.0.1:1", tls=tls_context(None), proxy=f"http://127.0.0.1:{port}"
        )
        with pytest.raises(ExchangeFailed, match=r"the proxy refused: HTTP/1\.1 407"):
            await fetch(wire)


async def test_a_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_peer() as peer, proxy() as (port, heads):
        hello(peer)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        wire = ConnectionPool(peer.url)
        assert await fetch(wire) == b"hello from /"
        wire.close()
        assert not heads  # never for what is on this machine
        wire = ConnectionPool("http://server.invalid/")
        assert wire.proxied
        monkeypatch.setenv("no_proxy", "server.invalid")
        assert not ConnectionPool("http://server.invalid/").proxied


async def test_a_connection_is_used_again_and_again() -> None:
    async with http_peer() as peer:
        hello(peer)
        wire = ConnectionPool(peer.url)
        for number in range(10):
            assert await fetch(wire, f"/{number}") == f"hello from /{number}".encode()
        wire.close()
    assert peer.connections == 1


async def test_a_connection_that_waited_long_is_not_trusted(clock: MovableClock) -> None:
    async with http_peer() as peer:
        hello(peer)
        wire = ConnectionPool(peer.url)
        await fetch(wire)
        clock.move(3600)
        await fetch(wire)
        wire.close()
    assert peer.connections == 2


async def test_only_some_connections_are_kept() -> None:
    gate = asyncio.Event()
    async with http_peer() as peer:

        @peer.on("GET")
        async def get(request: Request) -> None:
            await gate.wait()
            await request.respond(200)

        wire = ConnectionPool(peer.url)
        work = [asyncio.ensure_future(fetch(wire)) for _ in range(50)]
        await peer.until_asked("GET", 50)
        gate.set()
        await asyncio.gather(*work)
        assert len(wire._kept) == 32
        wire.close()


async def test_leaving_a_body_unread_closes_the_connection() -> None:
    async with http_peer() as peer:

        @peer.on("GET")
        async def get(request: Request) -> None:
            await request.stream()
            await request.chunk(b"x" * 100)
            await request.gone.wait()

        wire = ConnectionPool(peer.url)
        connection = await wire.acquire()
        connection.send("GET", "/", [])
        await connection.answered()
        connection.release()
        await asyncio.wait_for(peer.requests[0].gone.wait(), 30)
        assert not wire._kept


async def test_a_slow_connection_is_not_waited_for() -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    port = free_port()
    server = await asyncio.start_server(never, "127.0.0.1", port)
    wire = ConnectionPool(f"https://127.0.0.1:{port}", tls=tls_context(None), connect_timeout=0.1)
    with pytest.raises(ExchangeFailed, match=r"no connection within 0\.1 s"):
        await wire.acquire()
    server.close()


@pytest.mark.parametrize("bad", ["a\r\nb", "a\nb", "a\rb", "a\0b"])
def test_nothing_ends_a_header_early(bad: str) -> None:
    for headers in ([("X", bad)], [(bad, "x")]):
        with pytest.raises(ValueError, match="header"):
            format_head("GET", "/", headers)
    with pytest.raises(ValueError, match="header"):
        format_head("GET", bad, [])


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("http://Example.com", "http://example.com", "/"),
        ("http://example.com:80/a?b=c#d", "http://example.com", "/a?b=c"),
        ("https://example.com:443/a%20b", "https://example.com", "/a%20b"),
        ("https://me:secret@example.com:8443/", "https://example.com:8443", "/"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000", "/mcp"),
        ("http://müller.example/ä ö", "http://xn--mller-kva.example", "/%C3%A4%20%C3%B6"),
    ],
)
def test_the_parts_of_an_address(url: str, origin: str, target: str) -> None:
    parts = urlsplit(url)
    assert (origin_of(parts), target_of(parts)) == (origin, target)


class LateDialer(Dialer):
    """Returns each connection when the server has ended it."""

    async def dial(self, pool: ConnectionPool) -> Any:
        connection = await super().dial(pool)
        await eventually(lambda: not connection.usable(60))
        return connection


async def test_a_server_that_ends_every_connection_before_it_can_be_used() -> None:
    ended = 0

    def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        ended += 1
        writer.close()

    server = await asyncio.start_server(end, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    wire = ConnectionPool(url, dialer=LateDialer(url, None, None, False))
    try:
        async with asyncio.timeout(10):
            with pytest.raises(ExchangeFailed, match="the server takes no requests") as caught:
                await fetch(wire)
        assert not caught.value.sent
        assert ended == 1
    finally:
        wire.close()
        server.close()
