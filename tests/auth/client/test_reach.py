"""Authorization servers are reached as the server itself is: by its proxy, with its root certificates."""

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import AuthorizationFailed, Client
from mcpearl.auth import ClientCredentials, FetchPolicy, MemoryStorage
from mcpearl.auth.fetch import FetchFailed, FetchRefused, fetch_json
from mcpearl.net.tls import Tls, client_context, trusting_context
from tests.auth.client.test_grants import gives
from tests.auth.client.world import (
    Authority,
    Guarded,
    authority,
    guarded,
    person,
    port_of,
)
from tests.auth.server.certificates import Authority as Certificates
from tests.transports.proxies import proxy


async def use(client: Client) -> None:
    assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"


@pytest.mark.parametrize("way", ["person", "program"])
async def test_the_proxy_of_the_client(issuer: Authority, server: Guarded, way: str):
    auth: Any = person()
    wanted = {"register", "token", "oauth-authorization-server"}
    if way == "program":
        gives(issuer, "client_credentials")
        issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        auth = ClientCredentials("agent", client_secret="hush")
        wanted.remove("register")
    async with proxy() as (port, heads):
        address = f"http://127.0.0.1:{port}"
        async with Client(server.url, auth=auth, proxy=address) as client:
            await use(client)
        targets = [head.split(" ")[1] for head in heads]
        asked = [target for target in targets if target.startswith(issuer.origin)]
        assert {target.rpartition("/")[2] for target in asked} == wanted
        assert any("oauth-protected-resource" in target for target in targets)


async def test_each_client_by_its_own_proxy(issuer: Authority, server: Guarded):
    """One `OAuth` for two clients: the login is shared, the way there is each one's own."""
    auth = person(storage=MemoryStorage())
    async with proxy() as (one, first), proxy() as (two, second):
        async with Client(server.url, auth=auth, proxy=f"http://127.0.0.1:{one}") as client:
            await use(client)
        issuer.tokens.clear()
        async with Client(server.url, auth=auth, proxy=f"http://127.0.0.1:{two}") as client:
            await use(client)
    token = f"{issuer.origin}/token"
    assert [any(token in head for head in heads) for heads in (first, second)] == [True, True]
    assert len(issuer.asked) == 1
    assert issuer.count("refresh_token") == 1


async def test_a_proxy_that_refuses(issuer: Authority, server: Guarded):
    """Nobody is asked around it."""
    async with Client(server.url, auth=person()) as client:
        await use(client)
    seen = len(issuer.forms)
    async with proxy(refuse=True) as (port, _):
        policy = FetchPolicy(allow_loopback=True, proxy=f"http://127.0.0.1:{port}")
        answer = await fetch_json(f"{issuer.origin}/token", method="POST", policy=policy)
        assert answer.status == 407
    assert len(issuer.forms) == seen


async def test_tls_through_the_proxy(tmp_path: Path):
    """With the roots of the client, in a tunnel the proxy opens."""
    ours = Certificates(tmp_path, "ours")

    async def browse(url: str) -> None:
        trust = ours.client_context()
        await asyncio.to_thread(
            lambda: urllib.request.urlopen(url, timeout=10, context=trust).close()
        )

    async with (
        authority(ours.issue("issuer", "127.0.0.1")) as issuer,
        guarded(issuer, ours.issue("server", "127.0.0.1")) as server,
        proxy() as (port, heads),
    ):
        for tls in (Tls(ca=ours.ca), client_context(Tls(ca=ours.ca))):
            heads.clear()
            auth = person(open_browser=browse)
            address = f"http://127.0.0.1:{port}"
            async with Client(server.url, auth=auth, tls=tls, proxy=address) as client:
                await use(client)
            for each in (issuer.origin, server.origin):
                assert any(head.startswith(f"CONNECT 127.0.0.1:{port_of(each)} ") for head in heads)
        with pytest.raises(AuthorizationFailed, match="certificate"):
            strangers = Certificates(tmp_path, "strangers")
            auth = person(tls=Tls(ca=strangers.ca))  # what is said of them counts first
            await Client(server.url, auth=auth, tls=Tls(ca=ours.ca)).connect()


@asynccontextmanager
async def asking_for_certificates(ours: Certificates) -> AsyncIterator[tuple[str, list[Any]]]:
    """A server that asks for client certificates: its address, and the certificates it saw."""
    came: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        came.append(writer.get_extra_info("peercert"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.issue("server", "127.0.0.1"))
    context.load_verify_locations(ours.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", came


async def test_who_the_client_is_only_its_server_is_shown(tmp_path: Path):
    ours = Certificates(tmp_path, "ours")
    certificate, key = ours.issue("me")
    mine = Tls(ca=ours.ca, certificate=certificate, key=key)
    async with asking_for_certificates(ours) as (url, came):
        for tls in (client_context(mine), trusting_context(mine)):
            await fetch_json(url, policy=FetchPolicy(allow_loopback=True, tls=tls))
        tls = trusting_context(client_context(mine))
        await fetch_json(url, policy=FetchPolicy(allow_loopback=True, tls=tls))
        assert [bool(certificate) for certificate in came] == [True, False, False]
        with pytest.raises(FetchFailed, match="certificate"):
            await fetch_json(url, policy=FetchPolicy(allow_loopback=True))


async def test_a_private_address_is_refused_also_behind_a_proxy():
    async with proxy(refuse=True) as (port, heads):
        policy = FetchPolicy(proxy=f"http://127.0.0.1:{port}")
        for host in ("10.0.0.5", "169.254.169.254", "[fd00::1]", "[::ffff:192.168.1.1]"):
            with pytest.raises(FetchRefused, match="address"):
                await fetch_json(f"https://{host}/token", policy=policy)
        assert heads == []
