"""Getting into WebSockets that ask: every way of authorizing, at the handshake, over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import websockets

from mcpearl import AuthorizationFailed, Client, ConnectionLost, Server
from mcpearl.auth import (
    BearerToken,
    ClientCredentials,
    MemoryStorage,
    Principal,
    ResourceServer,
)
from mcpearl.auth.client.storage import Key
from mcpearl.client.reconnect import Reconnect
from mcpearl.net.tls import Tls
from mcpearl.protocol.lifecycle import Phase
from mcpearl.runtime import clock as source
from mcpearl.testing.clock import MovableClock
from tests.auth.client.test_dpop import Binding
from tests.auth.client.test_grants import gives
from tests.auth.client.world import Authority, authority, person, serving, visit
from tests.ports import free_port
from tests.transports.raw_http import Raw, until_open
from tests.transports.raw_http import serving as serving_http
from tests.waiting import eventually

WIRES = ["own port", "beside", "same path", "asgi", "granian"]
SOON = Reconnect(delays=(0.05,))


class Tokens:
    """Verifies what an authority gave, and counts how often it was asked."""

    def __init__(self, by: Authority) -> None:
        self._by = by
        self.asked: list[str] = []

    @property
    def issuer(self) -> str:
        return self._by.issuer

    async def verify(self, token: str) -> Principal | None:
        self.asked.append(token)
        until, scopes = self._by.tokens.get(token, (0.0, set()))
        if source.now() >= until:
            return None
        thumbprint = getattr(self._by, "keys", {}).get(token)
        claims = {} if thumbprint is None else {"cnf": {"jkt": thumbprint}}
        return Principal("alice", scopes=scopes, claims=claims, expires=until)


class Served:
    """A server behind a WebSocket, and what is known of it."""

    def __init__(self, url: str, app: Server, tokens: Tokens) -> None:
        self.url = url
        self.app = app
        self.tokens = tokens
        self.queries: list[bytes] = []

    def drop(self) -> None:
        """Cut every client off."""
        for connection in list(self.app.connections):
            connection.transport.wire.abort()  # type: ignore[attr-defined]


def _app(auth: Any) -> Server:
    app = Server("guarded", auth=auth, grace=1.0)

    @app.tool
    def add(a: int, b: int) -> int:
        return a + b

    return app


@asynccontextmanager
async def guarded(
    by: Authority, wire: str = "own port", certificate: Path | None = None, **settings: Any
) -> AsyncIterator[Served]:
    tokens = Tokens(by)
    app = _app(ResourceServer(tokens, recheck=0.01, **settings))
    secure = {} if certificate is None else {"certificate": str(certificate)}
    scheme = "ws" if certificate is None else "wss"
    if wire == "own port":
        port = free_port()
        task = asyncio.create_task(app.serve("ws", port=port, **secure))
        try:
            await until_open(port, task)
            yield Served(f"{scheme}://127.0.0.1:{port}/", app, tokens)
        finally:
            task.cancel()
            await asyncio.wait([task])
    elif wire == "asgi":
        made = Served("", app, tokens)

        def make(origin: str) -> Any:
            made.url = origin.replace("http", "ws", 1) + "/ws"
            inner = app.asgi(websocket="/ws")

            async def outer(scope: Any, receive: Any, send: Any) -> None:
                made.queries.append(scope.get("query_string", b""))
                await inner(scope, receive, send)

            return outer

        async with serving(make):
            yield made
    else:
        path = {"beside": "/ws", "same path": "/mcp", "granian": "/ws"}[wire]
        front = "granian" if wire == "granian" else "mcpearl"
        async with serving_http(app, websocket=path, server=front, **secure) as client:
            yield Served(f"{scheme}://127.0.0.1:{client.port}{path}", app, tokens)


async def use(client: Client) -> None:
    assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"


@pytest.mark.parametrize("wire", WIRES)
async def test_log_in_at_the_handshake(issuer: Authority, wire: str):
    async with guarded(issuer, wire) as server:
        auth = person()
        async with Client(server.url, auth=auth) as client:
            await use(client)
            await use(client)
        async with Client(server.url, auth=auth) as client:
            await use(client)
        (asked,) = issuer.asked
        assert asked["resource"] == server.url.replace("ws", "http", 1).rstrip("/")
        assert not any(b"access" in query for query in server.queries)
        assert wire != "asgi" or server.queries


async def test_one_login_for_http_and_its_websocket(issuer: Authority):
    async with guarded(issuer, "same path") as server:
        auth = person()
        for url in (server.url.replace("ws", "http", 1), server.url):
            async with Client(url, auth=auth) as client:
                await use(client)
        assert len(issuer.asked) == 1


@pytest.mark.parametrize("wire", ["own port", "beside"])
async def test_over_tls(issuer: Authority, certificate: Path, wire: str):
    async with guarded(issuer, wire, certificate) as server:
        assert server.url.startswith("wss://")
        async with Client(server.url, auth=person(), tls=Tls(ca=certificate)) as client:
            await use(client)
        assert len(issuer.asked) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_says_where_to_log_in(issuer: Authority, wire: str):
    """The 401 of an upgrade carries the challenge, and it leads to metadata of this very place."""
    async with guarded(issuer, wire, scopes=["notes"]) as server:
        for headers in ({}, {"Authorization": "Bearer nobody-knows-this-one"}):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(
                    server.url,
                    additional_headers=headers,
                    subprotocols=[websockets.Subprotocol("mcp")],
                )
            response = refused.value.response
            assert response.status_code == 401
            challenge = response.headers["WWW-Authenticate"]
            assert challenge.startswith("Bearer ")
            assert 'scope="notes"' in challenge
            assert ("invalid_token" in challenge) is bool(headers)
            url = challenge.partition('resource_metadata="')[2].partition('"')[0]
            raw = Raw(urlsplit(url).port or 0)
            document = (await raw.request("GET", {}, path=urlsplit(url).path)).json
            assert document["resource"] == server.url.replace("ws", "http", 1).rstrip("/")
            assert document["authorization_servers"] == [issuer.issuer]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_token_in_the_address_is_refused(issuer: Authority, wire: str):
    token = issuer.issue("")["access_token"]
    async with guarded(issuer, wire) as server:
        with pytest.raises(ConnectionLost, match="it answered 400"):
            await Client(f"{server.url}?access_token={token}").connect()
        assert server.tokens.asked == []


async def test_more_scopes_at_the_handshake(issuer: Authority):
    """A token without the scopes this place needs leads to a login with them."""
    async with guarded(issuer, scopes=["notes"]) as server:
        storage = await _left_by_an_earlier_login(issuer, server)
        async with Client(server.url, auth=person(storage=storage)) as client:
            await use(client)
        (asked,) = issuer.asked
        assert set(asked["scope"].split()) == {"own", "notes"}


async def test_scopes_that_are_not_granted(issuer: Authority):
    async with guarded(issuer, scopes=["notes"]) as server:
        give = issuer.issue
        issuer.issue = lambda scope: give("own")  # type: ignore[method-assign]
        with pytest.raises(AuthorizationFailed, match="already requested"):
            await Client(server.url, auth=person(scopes=["own"])).connect()
        assert len(issuer.asked) == 1


async def _left_by_an_earlier_login(issuer: Authority, server: Served) -> MemoryStorage:
    """A store with a token that has fewer scopes than are needed now."""
    storage = MemoryStorage()
    url = server.url.replace("ws", "http", 1)
    resource = url.rstrip("/")
    token = {
        "access_token": issuer.issue("own")["access_token"],
        "issuer": issuer.issuer,
        "resource": resource,
        "requested": ["own"],
    }
    await storage.save(Key("", url), {"issuer": issuer.issuer, "resource": resource})
    await storage.save(Key(issuer.issuer, resource), token)
    return storage


async def test_without_a_person(issuer: Authority):
    gives(issuer, "client_credentials")
    issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
    async with guarded(issuer) as server:
        auth = ClientCredentials("agent", client_secret="hush", issuer=issuer.issuer)
        async with Client(server.url, auth=auth) as client:
            await use(client)
        token = issuer.issue("")["access_token"]
        async with Client(server.url, auth=BearerToken(token)) as client:
            await use(client)

        async def later() -> str:
            await asyncio.sleep(0)
            return token

        ways: list[Callable[[], Any]] = [lambda: token, later]
        for way in ways:
            async with Client(server.url, auth=way) as client:
                await use(client)


async def test_each_connection_brings_the_token_of_its_time(issuer: Authority, clock: MovableClock):
    """The server ends the WebSocket with its token; the client renews it and comes back."""
    issuer.lifetime = 100
    async with guarded(issuer) as server:
        phases: list[Phase] = []
        async with Client(
            server.url, auth=person(), reconnect=SOON, on_state=phases.append
        ) as client:
            await use(client)
            first = issuer.tokens.copy()
            for times in (2, 3):
                clock.move(101)
                await eventually(lambda times=times: phases.count(Phase.READY) == times)
            await use(client)
        assert len(issuer.asked) == 1
        assert issuer.count("refresh_token") >= 2
        assert len(set(server.tokens.asked)) >= 3
        assert not set(server.tokens.asked[-1:]) & set(first)


async def test_a_function_is_asked_for_each_connection(issuer: Authority):
    given: list[str] = []

    def fresh() -> str:
        given.append(str(issuer.issue("")["access_token"]))
        return given[-1]

    async with guarded(issuer) as server:
        phases: list[Phase] = []
        async with Client(server.url, auth=fresh, reconnect=SOON, on_state=phases.append) as client:
            await use(client)
            server.drop()
            await eventually(lambda: phases.count(Phase.READY) == 2)
            await use(client)
    assert server.tokens.asked == given
    assert len(given) == 2


@pytest.mark.parametrize("way", ["fixed", "function", "granted"])
async def test_a_refused_token_is_not_shown_over_and_over(issuer: Authority, way: str):
    auth: Any = {
        "fixed": BearerToken("nobody-knows-this-one"),
        "function": lambda: "nobody-knows-this-one",
        "granted": person(),
    }[way]
    async with guarded(issuer) as server:

        async def verify(token: str) -> None:
            server.tokens.asked.append(token)

        server.tokens.verify = verify  # type: ignore[method-assign]
        with pytest.raises(AuthorizationFailed, match="refuse"):
            await Client(server.url, auth=auth, reconnect=SOON).connect()
        assert len(server.tokens.asked) == 1
        assert len(issuer.asked) == (way == "granted")


async def test_a_token_that_is_refused_later_ends_it(issuer: Authority, clock: MovableClock):
    token = issuer.issue("")["access_token"]
    async with (
        guarded(issuer) as server,
        Client(server.url, auth=BearerToken(token), reconnect=SOON) as client,
    ):
        await use(client)
        issuer.tokens.clear()
        clock.move(60)  # more than `recheck`
        server.drop()
        await eventually(lambda: client.state is not Phase.READY)
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="refused the token"):
                await client.call_tool("add", {"a": 1, "b": 1}, timeout=30)
        assert server.tokens.asked == [token, token]


async def test_connecting_does_not_time_out_while_a_person_logs_in(
    issuer: Authority, clock: MovableClock
):
    async def slowly(url: str) -> None:
        clock.move(250)
        await visit(url)

    async with guarded(issuer) as server:
        auth = person(open_browser=slowly, timeout=300)
        async with Client(server.url, auth=auth, connect_timeout=20) as client:
            await use(client)
    assert len(issuer.asked) == 1


@pytest.mark.parametrize("wire", ["own port", "beside", "asgi", "granian", "tls"])
async def test_a_proof_for_the_handshake(wire: str, certificate: Path):
    """`htu` is the http(s) address of the WebSocket, on both sides, with nonces of both."""
    binding = Binding()

    def make(origin: str) -> Any:
        binding.origin = origin
        return binding.app()

    secure = wire == "tls"
    async with (
        serving(make),
        guarded(
            binding,
            "own port" if secure else wire,
            certificate if secure else None,
            dpop="required",
            dpop_nonces=True,
        ) as server,
    ):
        tls = Tls(ca=certificate) if secure else None
        phases: list[Phase] = []
        async with Client(
            server.url,
            auth=person(dpop=True),
            tls=tls,
            reconnect=SOON,
            on_state=phases.append,
        ) as client:
            await use(client)
            if wire not in ("asgi", "granian"):  # whose sockets are not ours to cut
                server.drop()
                await eventually(lambda: phases.count(Phase.READY) == 2)
                await use(client)
        assert len(binding.asked) == 1
        assert set(binding.keys) == set(server.tokens.asked)


async def test_a_websocket_under_another_server_ends_with_its_token(issuer: Authority):
    issuer.lifetime = 3
    async with guarded(issuer, "asgi") as server:
        phases: list[Phase] = []
        async with Client(
            server.url, auth=person(), reconnect=SOON, on_state=phases.append
        ) as client:
            await use(client)
            await eventually(lambda: phases.count(Phase.READY) >= 2, 60)
            await use(client)
        assert issuer.count("refresh_token") >= 1


async def test_who_says_it_twice():
    with pytest.raises(ValueError, match="either `auth` or an `Authorization` header"):
        await Client(
            "ws://127.0.0.1:1/", auth=lambda: "t", headers={"authorization": "Bearer x"}
        ).connect()
    with pytest.raises(ValueError, match="either `auth` or a login in the address"):
        await Client("ws://me:secret@127.0.0.1:1/", auth=lambda: "t").connect()


@pytest.mark.parametrize(
    ("target", "instead"),
    [
        ("tcp://127.0.0.1:9", "tls=Tls"),
        ("tls://127.0.0.1:9", "certificate"),
        ("unix:///run/x.sock", "leave `auth` out"),
        (["server"], r"env=\{"),
        ({"command": "server"}, r"env=\{"),
        ("server.py", r"env=\{"),
        (Server("mine"), "needs no login"),
    ],
)
def test_where_no_token_can_be_brought(target: Any, instead: str):
    with pytest.raises(ValueError, match=instead) as refused:
        Client(target, auth="oauth")
    assert "http(s):// and ws(s)://" in str(refused.value)


async def test_metadata_of_another_place_is_not_followed(issuer: Authority):
    """A server that claims to be another gets no token for that one."""
    async with (
        authority() as other,
        guarded(issuer, resource=f"{other.origin}/mcp") as server,
    ):
        with pytest.raises(AuthorizationFailed, match="is for"):
            await Client(server.url, auth=person()).connect()
        assert issuer.asked == other.asked == []
