"""Fetching from addresses others wrote: what is refused, what is bounded, what gets through."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcpearl.auth.fetch import FetchError, FetchFailed, FetchPolicy, FetchRefused, fetch_json
from tests.auth.server.certificates import Authority

LOCAL = FetchPolicy(allow_loopback=True)
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that reads a request whole and lets the test write what it likes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            for line in request.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    request += await reader.readexactly(int(line.split(b":")[1]))
            await answer(request, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def test_a_document_is_fetched() -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        assert request.startswith(b"GET /keys?v=1 HTTP/1.1\r\n")
        assert b"Accept: application/json\r\n" in request
        writer.write(response(b'{"keys":[]}', "200 OK", "Cache-Control: max-age=5"))

    async with answering(answer) as port:
        fetched = await fetch_json(f"http://127.0.0.1:{port}/keys?v=1", policy=LOCAL)
    assert (fetched.status, fetched.body) == (200, {"keys": []})
    assert fetched.headers["cache-control"] == "max-age=5"


async def test_forms_and_json_are_sent() -> None:
    seen: list[bytes] = []

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(request)
        writer.write(response(b"not json", "400 Bad Request"))

    async with answering(answer) as port:
        url = f"http://localhost:{port}/token"
        fetched = await fetch_json(url, method="POST", form={"a": "1 &"}, policy=LOCAL)
        assert (fetched.status, fetched.body) == (400, None)
        await fetch_json(
            url, method="POST", json={"b": 2}, headers=[("DPoP", "proof")], policy=LOCAL
        )
    assert seen[0].endswith(b"\r\n\r\na=1+%26")
    assert b"Content-Type: application/x-www-form-urlencoded\r\n" in seen[0]
    assert seen[1].endswith(b'{"b":2}')
    assert b"DPoP: proof\r\n" in seen[1]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/keys", "no TLS"),
        ("ftp://example.com/keys", "not an https:// URL"),
        ("file:///etc/passwd", "not an https:// URL"),
        ("https:///keys", "not an https:// URL"),
        ("https://user:secret@example.com/", "contains credentials"),
        ("https://example.com/a b", "blank"),
        ("https://example.com:0/", "not an https:// URL"),
        ("https://example.com:99999999/", "not a valid URL"),
        ("https://[::1/", "not a valid URL"),
        ("http://localhost:1/", "this machine"),
        ("https://127.0.0.1/", "this machine"),
        ("https://127.1/", "address of this machine"),
        ("https://[::1]/", "this machine"),
        ("https://[::ffff:127.0.0.1]/", "this machine"),
        ("https://0.0.0.0/", "not the address of a host"),
        ("https://10.1.2.3/", "a private address"),
        ("https://172.16.0.1/", "a private address"),
        ("https://192.168.1.1/", "a private address"),
        ("https://100.64.0.1/", "a private address"),
        ("https://169.254.169.254/latest/meta-data", "not the address of a host"),
        ("https://[fd00::1]/", "a private address"),
        ("https://[fe80::1]/", "not the address of a host"),
        ("https://[::ffff:10.0.0.1]/", "a private address"),
        ("https://[64:ff9b::a00:1]/", "a private address"),
        ("https://[2002:a00:1::]/", "a private address"),
        ("https://224.0.0.1/", "not the address of a host"),
        ("https://[fec0::1]/", "out of use"),
        ("https://192.88.99.1/", "out of use"),
    ],
)
async def test_an_address_that_is_refused(url: str, why: str) -> None:
    with pytest.raises(FetchRefused, match=why) as refused:
        await fetch_json(url, policy=FetchPolicy(timeout=5))
    assert "secret" not in str(refused.value)


async def test_link_local_is_refused_also_where_private_is_allowed() -> None:
    policy = FetchPolicy(allow_private=True, allow_loopback=True)
    with pytest.raises(FetchRefused):
        await fetch_json("https://169.254.169.254/", policy=policy)


async def test_a_name_that_leads_to_loopback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with DNS rebinding: what a name says is not where it leads."""
    loop = asyncio.get_running_loop()

    async def lookup(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(loop, "getaddrinfo", lookup)
    for policy in (FetchPolicy(), LOCAL):
        with pytest.raises(FetchRefused, match="an address of this machine"):
            await fetch_json("https://rebound.example.com/", policy=policy)


async def test_what_was_checked_is_what_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The name is looked up once; TLS still is the name's."""
    authority = Authority(tmp_path)
    lookups: list[str] = []

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"{}"))

    loop = asyncio.get_running_loop()

    async def lookup(host: str, port: int, **_: object) -> list[object]:
        lookups.append(host)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.2", "127.0.0.1")
        ]

    tls = authority.server_context("keys.test")
    policy = FetchPolicy(allow_private=True, allow_loopback=True, tls=authority.client_context())
    async with answering(answer, tls) as port:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "getaddrinfo", lookup)
            fetched = await fetch_json(f"https://keys.test:{port}/", policy=policy)
            assert (fetched.status, lookups) == (200, ["keys.test"])
            with pytest.raises(FetchFailed, match="certificate"):
                await fetch_json(f"https://other.test:{port}/", policy=policy)


async def test_redirects_stay_within_the_origin() -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        path = request.split()[1].decode()
        where = {
            "/a": "/b",
            "/out": "http://localhost:1/keys?token=secret",
            "/loop": "/loop",
            "/blank": "/a b",
            "/bracket": "http://[::1",
        }.get(path)
        if where is None:
            writer.write(response(json.dumps(path).encode()))
        else:
            writer.write(response(b"", "302 Found", f"Location: {where}"))

    async with answering(answer) as port:
        base = f"http://127.0.0.1:{port}"
        assert (await fetch_json(f"{base}/a", policy=LOCAL)).body == "/b"
        with pytest.raises(FetchRefused, match="another origin") as refused:
            await fetch_json(f"{base}/out", policy=LOCAL)
        assert "secret" not in str(refused.value)
        with pytest.raises(FetchRefused, match="blank"):
            await fetch_json(f"{base}/blank", policy=LOCAL)
        with pytest.raises(FetchRefused, match="an invalid URL"):
            await fetch_json(f"{base}/bracket", policy=LOCAL)
        with pytest.raises(FetchRefused, match="more than 3 times"):
            await fetch_json(f"{base}/loop", policy=LOCAL)
        with pytest.raises(FetchRefused, match="redirects a POST"):
            await fetch_json(f"{base}/a", method="POST", form={"x": "y"}, policy=LOCAL)


async def test_size_and_time_are_bounded() -> None:
    async def flood(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async def silent(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with answering(flood) as port:
        with pytest.raises(FetchFailed, match="more than the 262144 bytes"):
            await fetch_json(f"http://127.0.0.1:{port}/", policy=LOCAL)
    async with answering(silent) as port:
        with pytest.raises(FetchFailed, match=r"within 0\.3 s"):
            policy = FetchPolicy(allow_loopback=True, timeout=0.3)
            await fetch_json(f"http://127.0.0.1:{port}/", policy=policy)


async def test_a_port_that_is_closed() -> None:
    with pytest.raises(FetchError, match="cannot connect"):
        await fetch_json("http://127.0.0.1:9/", policy=LOCAL)


async def test_an_address_found_elsewhere_is_trusted_less() -> None:
    policy = FetchPolicy(allow_private=True, allow_loopback=True)
    issuer = "https://login.internal"
    assert policy.towards("https://login.internal/keys", issuer) is policy
    elsewhere = policy.towards("https://10.0.0.1/keys", issuer)
    assert (elsewhere.allow_private, elsewhere.allow_loopback) == (False, False)
    assert policy.towards("http://localhost:2/keys", "http://localhost:1").allow_loopback
