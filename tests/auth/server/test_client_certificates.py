"""Client certificates, over real TLS: as the only proof, and as what a token is bound to."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client
from mcpearl.auth import ClientCertificates, JWTVerifier
from mcpearl.auth.server.tls import thumbprint
from mcpearl.net.tls import Tls
from tests.auth.server.certificates import Authority
from tests.auth.server.issuer import AUDIENCE, Issuer
from tests.auth.server.protected import challenge, make_app, structured
from tests.ports import free_port
from tests.transports.raw_http import Raw
from tests.waiting import eventually


class Secure(Raw):
    """A raw client over TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self._context = context

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self._context, server_hostname="localhost"
        )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def secure(
    authority: Authority, auth: Any, wire: str = "http", **options: Any
) -> AsyncIterator[int]:
    certificate, key = authority.issue("localhost", "localhost", "127.0.0.1")
    port = free_port()
    app = make_app(auth=auth)
    ca = str(authority.ca)
    place = {"port": port, "certificate": certificate, "key": key, "client_ca": ca}
    task = asyncio.create_task(app.serve(wire, **place, **options))
    try:

        async def is_open() -> bool:
            try:
                _, writer = await Secure(port, authority.client_context()).connect()
            except ConnectionRefusedError:
                assert not task.done(), await task
                return False
            writer.close()
            return True

        await eventually(is_open)
        yield port
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_certificate_says_who_is_asking(authority: Authority) -> None:
    worker = authority.issue("worker")
    spiffe = authority.issue("pod", "spiffe://example.org/ns/notes", "pod.example.org")
    auth = ClientCertificates(scopes={"CN=worker": ["notes:write"]})
    async with secure(authority, auth) as port:
        for _ in range(2):
            first = Secure(port, authority.client_context(worker))
            answer = structured(await first.call("whoami"))
            assert (answer["subject"], answer["issuer"]) == ("CN=worker", "CN=test authority")
            assert answer["scopes"] == ["notes:write"]
        assert structured(await first.call("write")) == {"result": "written"}
        second = Secure(port, authority.client_context(spiffe))
        answer = structured(await second.call("whoami"))
        assert (answer["subject"], answer["scopes"]) == ("spiffe://example.org/ns/notes", [])
        refused = await second.call("write")
        assert refused.status == 403
        assert "notes:write" in refused.json["error"]["message"]
        session = await first_session(port, authority, worker)
        session._context = authority.client_context(spiffe)
        stolen = await session.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert stolen.status == 404


async def first_session(port: int, authority: Authority, pair: tuple[str, str]) -> Secure:
    client = Secure(port, authority.client_context(pair))
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    opened = await client.post(
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    )
    client.headers = {
        "Mcp-Session-Id": opened.headers["mcp-session-id"],
        "MCP-Protocol-Version": "2025-11-25",
    }
    await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    ping = await client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert ping.status == 200
    return client


async def test_without_a_certificate_or_with_a_strangers(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Authority(tmp_path, "another authority").issue("worker")
    async with secure(authority, ClientCertificates()) as port:
        answer = await Secure(port, authority.client_context()).call("whoami")
        assert answer.status == 401
        assert "client certificate" in answer.json["error"]["message"]
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await Secure(port, authority.client_context(stranger)).call("whoami")
    assert "no client certificate" in caplog.text


async def test_a_token_bound_to_a_certificate(authority: Authority, issuer: Issuer) -> None:
    """RFC 8705: the token is good on the connection of its owner, and nowhere else."""
    worker, other = authority.issue("worker"), authority.issue("other")
    der = ssl.PEM_cert_to_DER_cert(Path(worker[0]).read_text())
    token = issuer.token(cnf={"x5t#S256": thumbprint(der)})
    verifier = JWTVerifier(issuer=issuer.url, audience=AUDIENCE, jwks_url=issuer.jwks_url)
    async with secure(authority, verifier) as port:
        for pair, status in ((worker, 200), (other, 401), (None, 401), (worker, 200)):
            client = Secure(port, authority.client_context(pair))
            client.headers = {"Authorization": f"Bearer {token}"}
            answer = await client.call("whoami")
            assert answer.status == status
            if status == 401:
                assert "client certificate" in challenge(answer)[1]["error_description"]


async def test_granian_cannot_tell_certificates(authority: Authority) -> None:
    """It would ask for them and keep who showed which to itself, so it is refused at the start."""
    certificate, key = authority.issue("localhost", "localhost")
    place: dict[str, Any] = {"port": free_port(), "certificate": certificate, "key": key}
    with pytest.raises(ValueError, match="granian does not pass clients' certificates on"):
        await make_app().serve("http", server="granian", client_ca=str(authority.ca), **place)
    with pytest.raises(ValueError, match="granian does not pass"):
        await make_app(auth=ClientCertificates()).serve("http", server="granian", **place)
    with pytest.raises(ValueError, match="granian does not pass"):
        await make_app().serve("http", server="granian", auth=ClientCertificates(), **place)


@pytest.mark.parametrize(("wire", "options"), [("ws", {}), ("http", {"websocket": "/"})])
async def test_a_websocket_is_told_certificates_too(
    authority: Authority, wire: str, options: dict[str, Any]
) -> None:
    auth = ClientCertificates(scopes={"CN=worker": ["notes:write"]})
    mine, my_key = authority.issue("worker")
    tls = Tls(ca=authority.ca, certificate=mine, key=my_key)
    async with (
        secure(authority, auth, wire, **options) as port,
        Client(f"wss://127.0.0.1:{port}/", tls=tls) as client,
    ):
        who = (await client.call_tool("whoami")).structured_content
        assert (who["subject"], who["scopes"]) == ("CN=worker", ["notes:write"])
        assert (await client.call_tool("write")).structured_content == {"result": "written"}
