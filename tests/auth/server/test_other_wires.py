"""Authorization on the other wires: WebSocket asks as HTTP does, sockets know certificates at most."""

import json
from pathlib import Path
from typing import Any

import pytest
import websockets

from mcpearl import Client
from mcpearl.auth import Principal, StaticTokens
from tests.auth.server.certificates import Authority
from tests.auth.server.issuer import Issuer, KeyPair
from tests.auth.server.protected import bearer, make_app
from tests.auth.server.test_dpop import bound, protect
from tests.ports import free_port
from tests.transports.raw_http import message, meta, serving

READER = "reader-0123456789abc"
WRITER = "writer-0123456789abc"
TOKENS = StaticTokens(
    {READER: Principal("reader"), WRITER: Principal("writer", scopes=["notes:write"])}
)


async def ask(url: str, token: str | None, method: str, **params: Any) -> Any:
    """One modern request over a WebSocket of its own."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with websockets.connect(
        url, additional_headers=headers, subprotocols=[websockets.Subprotocol("mcp")]
    ) as socket:
        await socket.send(json.dumps(message(method, {**params, "_meta": meta()})))
        return json.loads(await socket.recv())


async def check_websocket(url: str) -> None:
    for token, written in ((READER, False), (WRITER, True)):
        answer = await ask(url, token, "tools/call", name="write", arguments={})
        assert ("result" in answer) is written
        listed = (await ask(url, token, "tools/list"))["result"]["tools"]
        assert ("write" in {tool["name"] for tool in listed}) is written
    for wrong in (None, "wrong-0123456789abcdef"):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await ask(url, wrong, "tools/list")
        assert refused.value.response.status_code == 401
        assert refused.value.response.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_websocket_on_its_own_port() -> None:
    port = free_port()
    async with make_app(auth=TOKENS).serving("ws", port=port):
        await check_websocket(f"ws://127.0.0.1:{port}/")
    async with make_app().serving("ws", port=port, auth=TOKENS):
        await check_websocket(f"ws://127.0.0.1:{port}/")


async def test_a_websocket_beside_http() -> None:
    async with serving(make_app(auth=TOKENS), websocket="/ws") as client:
        await check_websocket(f"ws://127.0.0.1:{client.port}/ws")
        assert (await client.call("whoami")).status == 401


async def test_a_websocket_without_a_gate_offers_nothing_that_needs_scopes() -> None:
    port = free_port()
    async with make_app().serving("ws", port=port):
        answer = await ask(
            f"ws://127.0.0.1:{port}/", None, "tools/call", name="write", arguments={}
        )
        assert answer["error"]["data"]["requiredScopes"] == ["notes:write"]


async def test_a_handshake_with_a_proof(issuer: Issuer) -> None:
    key = KeyPair("ES256")
    token = bound(issuer, key)
    async with serving(make_app(auth=protect(issuer)), websocket="/ws") as client:
        url = f"127.0.0.1:{client.port}/ws"
        proof = key.proof(token, f"http://{url}", "GET")
        headers = {"Authorization": f"DPoP {token}", "DPoP": proof}
        subprotocols = [websockets.Subprotocol("mcp")]
        options: Any = {"additional_headers": headers, "subprotocols": subprotocols}
        async with websockets.connect(f"ws://{url}", **options):
            pass
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(f"ws://{url}", **options)


async def test_the_old_transport_asks_too() -> None:
    async with serving(make_app(auth=TOKENS), http_sse=True) as client:
        assert (await client.request("GET", {}, path="/sse")).status == 401
        stream = await client.request(
            "GET", {"Accept": "text/event-stream", **bearer(READER)}, path="/sse"
        )
        first = await stream.event()
        assert first is not None
        data = json.dumps(message("ping")).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for who, status in ((bearer(WRITER), 404), ({}, 401), (bearer(READER), 202)):
            posted = await client.request("POST", {**headers, **who}, data, path=first["data"])
            assert posted.status == status
        stream.close()


async def test_tcp_cannot_bring_a_token() -> None:
    with pytest.raises(ValueError, match="clients cannot send a token over TCP"):
        await make_app(auth=TOKENS).serve("tcp", port=free_port())


async def test_a_caller_over_tcp_is_anonymous_or_has_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = free_port()
    async with (
        make_app().serving("tcp", port=port),
        Client(f"tcp://127.0.0.1:{port}") as client,
    ):
        assert (await client.call_tool("whoami")).structured_content == {"subject": None}
        assert "write" not in {tool.name async for tool in client.tools()}
    certificate, key = authority.issue("localhost", "localhost", "127.0.0.1")
    mine, my_key = authority.issue("worker")
    from mcpearl.net.tls import Tls

    tls = Tls(ca=authority.ca, certificate=mine, key=my_key)
    options = {"certificate": certificate, "key": key, "client_ca": str(authority.ca)}
    async with (
        make_app().serving("tcp", port=port, **options),
        Client(f"tls://127.0.0.1:{port}", tls=tls) as client,
    ):
        who = (await client.call_tool("whoami")).structured_content
        assert who["subject"] == "CN=worker"


async def test_a_unix_socket_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with make_app().serving("unix", path=path), Client(f"unix://{path}") as client:
        result = await client.call_tool("write")
        assert result.structured_content == {"result": "written"}


async def test_asgi_websockets_ask_too() -> None:
    """Under another ASGI server the endpoint takes the WebSocket in itself."""
    app = make_app(auth=TOKENS).asgi(websocket="/ws")
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {
        "type": "websocket",
        "path": "/ws",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "subprotocols": ["mcp"],
        "extensions": {"websocket.http.response": {}},
    }
    async with app.running():
        await app(scope, receive, send)
    assert sent[0]["status"] == 401
    assert dict(sent[0]["headers"])[b"www-authenticate"] == b"Bearer"
