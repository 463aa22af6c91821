"""How a server at an address is reached: headers, proxies, TLS, and which HTTP."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, ConnectionLost, Tls
from mcpearl.net.http_client.pool import ConnectionPool
from tests.transports.http_peer import HttpPeer, Request, http_peer, modern
from tests.transports.proxies import proxy


@asynccontextmanager
async def served(tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpPeer]:
    """Run a server of the modern era whose one tool says hello."""
    async with http_peer(tls=tls) as peer:
        modern(peer)

        @peer.on("tools/call")
        async def call(request: Request) -> None:
            await request.result(
                {"resultType": "complete", "content": [{"type": "text", "text": "hello"}]}
            )

        yield peer


def secure(certificate: Path, ask: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate)
    return context


async def greeting(url: Any, **options: Any) -> str:
    async with Client(url, validate_output=False, **options) as client:
        return (await client.call_tool("hello")).content[0].text


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


async def test_the_entry_of_a_host_configuration_names_an_address() -> None:
    async with served() as peer:
        entry = {"type": "http", "url": peer.url, "headers": {"X-Team": "blue", "X-A": "1"}}
        assert await greeting(entry, headers={"X-A": "2"}) == "hello"
        assert await greeting({"mcpServers": {"only": entry}}) == "hello"
        assert {request.headers["x-team"] for request in peer.requests} == {"blue"}
        assert {request.headers["x-a"] for request in peer.requests} == {"1", "2"}


async def test_headers_go_with_every_request() -> None:
    async with served() as peer:
        assert await greeting(peer.url, headers={"X-Team": "blue", "User-Agent": "mine"}) == "hello"
        assert {request.headers["x-team"] for request in peer.requests} == {"blue"}
        assert {request.headers["user-agent"] for request in peer.requests} == {"mine"}


async def test_an_invalid_header_is_refused() -> None:
    with pytest.raises(ValueError, match="header"):
        await greeting("http://127.0.0.1:1", headers={"X-Bad": "a\r\nHost: b"})


async def test_the_certificates_to_trust_can_be_given(certificate: Path) -> None:
    async with served(secure(certificate)) as peer:
        url = peer.url.replace("http", "https")
        with pytest.raises(ConnectionLost, match="certificate"):
            await greeting(url)
        assert await greeting(url, tls=Tls(ca=certificate)) == "hello"
        own = ssl.create_default_context(cafile=certificate)
        assert await greeting(url, tls=own) == "hello"
        with pytest.raises(ValueError, match=r"cannot trust the certificates in '.*missing\.pem'"):
            await greeting(url, tls=Tls(ca=certificate.parent / "missing.pem"))


async def test_a_client_certificate_is_shown_to_a_server_that_asks(
    certificate: Path, tmp_path: Path
) -> None:
    pem = certificate.read_text()
    cut = pem.index("-----BEGIN PRIVATE KEY")
    (tmp_path / "one.pem").write_text(pem[:cut])
    (tmp_path / "key.pem").write_text(pem[cut:])
    alone, key = tmp_path / "one.pem", tmp_path / "key.pem"
    async with served(secure(certificate, ask=True)) as peer:
        url = peer.url.replace("http", "https")
        assert await greeting(url, tls=Tls(certificate, alone, key)) == "hello"
        assert await greeting(url, tls=Tls(certificate, certificate)) == "hello"
        with pytest.raises(ConnectionLost):
            await greeting(url, tls=Tls(certificate))
        with pytest.raises(ValueError, match=r"cannot use the certificate in '.*key\.pem'"):
            await greeting(url, tls=Tls(certificate, key))


async def test_requests_go_through_the_given_proxy(certificate: Path) -> None:
    async with served() as peer, proxy() as (port, heads):
        assert await greeting(peer.url, proxy=f"http://me:secret@127.0.0.1:{port}") == "hello"
        assert heads[0].startswith(f"POST {peer.url} HTTP/1.1")
        assert "Proxy-Authorization: Basic" in heads[0]
    async with served(secure(certificate)) as peer, proxy() as (port, heads):
        url = peer.url.replace("http", "https")
        given = f"http://me:secret@127.0.0.1:{port}"
        assert (
            await greeting(url, proxy=given, tls=Tls(certificate), headers={"X-Team": "blue"})
            == "hello"
        )
        assert heads[0].startswith("CONNECT 127.0.0.1")
        assert "Proxy-Authorization: Basic" in heads[0]
        assert "X-Team" not in heads[0]  # it is for the server
        assert all("proxy-authorization" not in each.headers for each in peer.requests)


@pytest.mark.parametrize("bad", ["socks5://127.0.0.1:1", "127.0.0.1:1", "https://127.0.0.1:1"])
async def test_an_invalid_proxy_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="http://"):
        await greeting("http://127.0.0.1:1", proxy=bad)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_requests_go_through_the_proxy_of_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as peer, proxy(leads_to=peer.port) as (port, heads):
        monkeypatch.setenv(name, f"127.0.0.1:{port}")
        assert await greeting("http://server.invalid/mcp") == "hello"
        assert heads[0].startswith("POST http://server.invalid/mcp HTTP/1.1")
        assert await greeting(peer.url) == "hello"
        assert all("server.invalid" in head for head in heads)  # never for this machine


@pytest.mark.parametrize(
    ("listed", "direct"),
    [
        ("*", True),
        ("server.invalid", True),
        (".invalid", True),
        ("other.invalid, server.invalid", True),
        ("server.invalid:8000", True),
        ("server.invalid:8001", False),
        ("erver.invalid", False),
        ("", False),
    ],
)
async def test_hosts_in_no_proxy_are_reached_directly(
    listed: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", listed)
    wire = ConnectionPool("http://server.invalid:8000/mcp")
    assert wire.proxied is not direct
    given = ConnectionPool("http://server.invalid:8000/mcp", proxy="http://127.0.0.1:2")
    assert given.proxied  # the one given counts


async def test_http2_true_fails_with_a_server_that_does_not_speak_it(certificate: Path) -> None:
    async with served(secure(certificate)) as peer:
        url = peer.url.replace("http", "https")
        with pytest.raises(ConnectionLost, match="does not speak HTTP/2"):
            await greeting(url, tls=Tls(certificate), http2=True)
        assert await greeting(url, tls=Tls(certificate), http2=False) == "hello"
        with pytest.raises(ValueError, match="https://"):
            await greeting(peer.url, http2=True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_to_another_origin_are_not_followed(status: int) -> None:
    async with served() as other, served() as peer:

        @peer.on("tools/call")
        async def call(request: Request) -> None:
            await request.respond(status, Location=other.url)

        with pytest.raises(Exception, match=f"HTTP status {status} points to"):
            await asyncio.wait_for(greeting(peer.url, headers={"X-Secret": "1"}), 30)
        assert not other.requests
