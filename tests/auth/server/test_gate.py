"""The token gate: what it publishes, what it answers, and how long it knows a token."""

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from mcpearl.auth import JWTVerifier, Principal, ResourceServer, StaticTokens, TokenRefused
from mcpearl.auth.server.known import KnownTokens
from mcpearl.runtime import clock as source
from mcpearl.testing.clock import MovableClock
from tests.auth.server.issuer import AUDIENCE, Issuer
from tests.auth.server.protected import as_bearer, challenge, make_app, structured
from tests.transports.raw_http import Raw, serving

METADATA_PATH = "/.well-known/oauth-protected-resource"
TOKEN = "static-token-0123456789"


def verifier_of(issuer: Issuer, audience: str = AUDIENCE) -> JWTVerifier:
    return JWTVerifier(issuer=issuer.url, audience=audience, jwks_url=issuer.jwks_url)


@pytest.fixture
async def client(issuer: Issuer) -> AsyncIterator[Raw]:
    async with serving(make_app(), auth=verifier_of(issuer)) as raw:
        yield raw


# What is published


async def test_metadata_at_both_places(client: Raw, issuer: Issuer) -> None:
    for path in (METADATA_PATH, f"{METADATA_PATH}/mcp"):
        answer = await client.request("GET", {}, path=path)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
        document = answer.json
        assert document["resource"] == f"http://127.0.0.1:{client.port}/mcp"
        assert document["authorization_servers"] == [issuer.url]
        assert document["bearer_methods_supported"] == ["header"]
        assert document["scopes_supported"] == ["notes:read", "notes:write"]
        assert "ES256" in document["dpop_signing_alg_values_supported"]
        assert "dpop_bound_access_tokens_required" not in document
    for path in (f"{METADATA_PATH}/other", f"{METADATA_PATH}mcp", "/.well-known/other", "/"):
        assert (await client.request("GET", {}, path=path)).status == 404


async def test_a_browser_may_ask_first(client: Raw) -> None:
    asked = {
        "Origin": "https://client.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "mcp-protocol-version",
    }
    answer = await client.request("OPTIONS", asked, path=METADATA_PATH)
    assert answer.status == 200
    assert answer.headers["access-control-allow-headers"] == "*"


async def test_a_browser_can_read_the_challenge(issuer: Issuer) -> None:
    origins = frozenset({"https://client.example"})
    options: Any = {"auth": verifier_of(issuer), "allowed_origins": origins}
    async with serving(make_app(), **options) as client:
        client.headers = {"Origin": "https://client.example"}
        answer = await client.call("whoami")
        assert answer.status == 401
        assert answer.headers["access-control-allow-origin"] == "https://client.example"
        assert "www-authenticate" in answer.headers["access-control-expose-headers"]


async def test_the_address_that_is_set_is_the_one_that_is_told(issuer: Issuer) -> None:
    """Behind a proxy requests say something else."""
    resource = "https://mcp.example.com/public/mcp"
    for auth in (
        ResourceServer(verifier_of(issuer), resource=resource, name="Notes"),
        ResourceServer(verifier_of(issuer, audience=resource), name="Notes"),
    ):
        async with serving(make_app(), auth=auth) as client:
            document = (await client.request("GET", {}, path=METADATA_PATH)).json
            assert (document["resource"], document["resource_name"]) == (resource, "Notes")
            said = challenge(await client.call("whoami"))[1]
            expected = f"https://mcp.example.com{METADATA_PATH}/public/mcp"
            assert said["resource_metadata"] == expected


async def test_a_host_that_is_none_is_not_repeated(client: Raw) -> None:
    for host in ('evil"', "a b", "evil.example/path", ""):
        client.headers = {"Host": host}
        answer = await client.request("GET", {}, path=METADATA_PATH)
        assert answer.status in (200, 400)
        assert b"evil" not in answer.body


async def test_mounted_in_another_application(issuer: Issuer) -> None:
    """The challenge leads to a place that is this application's own."""
    endpoint = make_app().asgi(auth=verifier_of(issuer))
    outer = Starlette(routes=[Mount("/api", endpoint)])
    transport = httpx2.ASGITransport(outer)
    async with (
        endpoint.running(),
        httpx2.AsyncClient(transport=transport, base_url="https://host.example") as client,
    ):
        refused = await client.post("/api/mcp", json={})
        assert refused.status_code == 401
        where = refused.headers["www-authenticate"].split('resource_metadata="')[1].split('"')[0]
        document = (await client.get(where)).json()
        assert document["resource"] == "https://host.example/api/mcp"
        for path in (
            f"/api{METADATA_PATH}",
            f"/api{METADATA_PATH}/api/mcp",
            f"/api{METADATA_PATH}/mcp",
        ):
            assert (await client.get(path)).json() == document
        token = issuer.token()
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await client.post("/api/mcp", json=body, headers=headers)).status_code == 400


# What is told at the door


async def test_without_a_token(client: Raw) -> None:
    answer = await client.call("whoami")
    assert answer.status == 401
    scheme, said = challenge(answer)
    assert scheme == "Bearer"
    expected = f"http://127.0.0.1:{client.port}{METADATA_PATH}/mcp"
    assert said == {"resource_metadata": expected}


async def test_scopes_every_caller_needs(issuer: Issuer) -> None:
    auth = ResourceServer(
        verifier_of(issuer), scopes=["mcp"], implies={"admin": ["staff"], "staff": ["mcp"]}
    )
    async with serving(make_app(), auth=auth) as client:
        assert challenge(await client.call("whoami"))[1]["scope"] == "mcp"
        refused = await as_bearer(client, issuer.token(scope="other")).call("whoami")
        assert refused.status == 403
        said = challenge(refused)[1]
        assert (said["error"], said["scope"]) == ("insufficient_scope", "mcp")
        assert "resource_metadata" in said
        for scope in ("mcp", "staff", "admin other"):
            answer = await as_bearer(client, issuer.token(scope=scope)).call("whoami")
            assert "mcp" in structured(answer)["scopes"]


async def test_who_is_asking(client: Raw, issuer: Issuer) -> None:
    token = issuer.token(scope="b a", department="pearls")
    for _ in range(2):  # verified, then known
        assert structured(await as_bearer(client, token).call("whoami")) == {
            "subject": "alice",
            "client_id": "app",
            "issuer": issuer.url,
            "scopes": ["a", "b"],
            "department": "pearls",
        }
    answer = await as_bearer(client, issuer.token(sub=None)).call("whoami")
    assert structured(answer)["subject"] == "app"


# Verifiers of one's own


class Own:
    """Anything with `verify`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.good = True

    async def verify(self, token: str) -> Any:
        self.asked.append(token)
        if token == "refused-token-0123":
            raise TokenRefused(f"no to {token}")
        if token == "broken-token-0123":
            raise RuntimeError(f"cannot handle {token}")
        if token == "strange-token-0123":
            return {"sub": "x"}
        return Principal("own", expires=source.now() + 60) if self.good else None


async def test_a_verifier_of_ones_own(caplog: pytest.LogCaptureFixture) -> None:
    own = Own()
    async with serving(make_app(auth=own)) as client:
        assert structured(await as_bearer(client, TOKEN).call("whoami"))["subject"] == "own"
        for token, status in (
            ("refused-token-0123", 401),
            ("broken-token-0123", 503),
            ("strange-token-0123", 503),
        ):
            answer = await as_bearer(client, token).call("whoami")
            assert answer.status == status
            assert token.encode() not in answer.body
            assert token not in answer.headers.get("www-authenticate", "")
            assert token not in caplog.text
    assert "`Own.verify` raised RuntimeError in Own.verify" in caplog.text
    assert "`Own.verify` returned a dict, not a `Principal`" in caplog.text


async def test_what_is_no_verifier_is_said_at_once() -> None:
    for wrong in ("token", 5, object()):
        with pytest.raises(TypeError, match="`auth` is a"):
            make_app().asgi(auth=wrong)
    with pytest.raises(TypeError, match="has no `verify`"):
        ResourceServer("token")  # type: ignore[arg-type]


# How long a token is known


async def test_a_revoked_token_ends_within_the_setting(clock: MovableClock) -> None:
    own = Own()
    async with serving(make_app(), auth=ResourceServer(own, recheck=20)) as client:
        caller = as_bearer(client, TOKEN)
        for _ in range(10):
            assert (await caller.call("whoami")).status == 200
        assert len(own.asked) == 1  # known, not asked again
        own.good = False
        assert (await caller.call("whoami")).status == 200
        clock.move(20)
        assert (await caller.call("whoami")).status == 401


async def test_a_known_token_ends_when_it_expires(issuer: Issuer, clock: MovableClock) -> None:
    verifier = JWTVerifier(issuer=issuer.url, audience=AUDIENCE, jwks_url=issuer.jwks_url, leeway=0)
    async with serving(make_app(), auth=ResourceServer(verifier, recheck=3600)) as client:
        caller = as_bearer(client, issuer.token(exp=int(source.now()) + 60))
        assert (await caller.call("whoami")).status == 200
        clock.move(61)
        answer = await caller.call("whoami")
        assert answer.status == 401
        assert "expired" in challenge(answer)[1]["error_description"]


async def test_what_is_known_is_bounded() -> None:
    known: KnownTokens[int] = KnownTokens(100)
    later = time.monotonic() + 60
    for number in range(1000):
        known.put(b"%d" % number, number, later)
    assert len(known) == 100
    assert known.get(b"899") is None
    assert known.get(b"900") == 900
    known.put(b"over", 1, time.monotonic())
    assert known.get(b"over") is None
    assert len(known) == 99


async def test_more_tokens_than_are_remembered_still_work() -> None:
    tokens = {f"{TOKEN}-{number}": f"user{number}" for number in range(30)}
    auth = ResourceServer(StaticTokens(tokens), max_known=5)
    async with serving(make_app(), auth=auth) as client:
        for _ in range(2):
            for token, name in tokens.items():
                assert structured(await as_bearer(client, token).call("whoami"))["subject"] == name
