"""Tokens bound to a key: proofs, nonces of both servers, and nothing less where that was asked for."""

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mcpearl import AuthorizationFailed, Client
from mcpearl.auth import FileStorage
from mcpearl.auth.client.dpop import ProofKey
from tests.auth.client.world import Authority, Guarded, person, serving


def opened(proof: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Check a proof with the key it carries; its header, its claims, and whose it is."""
    head = json.loads(base64.urlsafe_b64decode(proof.split(".")[0] + "=="))
    assert "d" not in head["jwk"]
    key = ECKey.import_key(head["jwk"])
    read = jwt.decode(proof, key, algorithms=["ES256"])
    return head, read.claims, key.thumbprint()


def test_a_proof():
    key = ProofKey()
    name, proof = key.proof("POST", "https://mcp.example:443/mcp?a=b#c", "token")
    head, claims, _ = opened(proof)
    assert name == "DPoP"
    assert (head["typ"], head["alg"]) == ("dpop+jwt", "ES256")
    assert (claims["htm"], claims["htu"]) == ("POST", "https://mcp.example/mcp")
    digest = hashlib.sha256(b"token").digest()
    assert claims["ath"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert abs(claims["iat"] - time.time()) < 5
    assert "nonce" not in claims
    again = opened(key.proof("POST", "https://mcp.example/mcp")[1])[1]
    assert again["jti"] != claims["jti"]
    assert "ath" not in again


def test_nonces_belong_to_their_server():
    key = ProofKey()
    assert key.learn("https://a.example/x", {"dpop-nonce": "one"})
    assert not key.learn("https://a.example/y", {"dpop-nonce": "one"})
    assert not key.learn("https://a.example/y", {})
    assert not key.learn("https://a.example/y", {"dpop-nonce": "x" * 2000})
    assert opened(key.proof("GET", "https://a.example/z")[1])[1]["nonce"] == "one"
    assert "nonce" not in opened(key.proof("GET", "https://b.example/z")[1])[1]
    for number in range(100):  # however many servers there are
        key.learn(f"https://{number}.example/", {"dpop-nonce": "n"})
    assert len(key._nonces) <= 32


def test_a_key_can_be_kept():
    key = ProofKey()
    same = ProofKey(key.private())
    assert (
        opened(key.proof("GET", "https://a.example/")[1])[2]
        == (opened(same.proof("GET", "https://a.example/")[1])[2])
    )


class Binding(Authority):
    """Binds tokens, and wants a nonce that changes with each token."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"dpop_signing_alg_values_supported": ["ES256"]}
        self.keys: dict[str, str] = {}
        self.nonce = "first"
        self.plain = False

    async def token(self, request: Request) -> Response:
        _, claims, thumbprint = opened(request.headers["dpop"])
        assert claims["htu"] == f"{self.issuer}/token"
        if claims.get("nonce") != self.nonce:
            answer = {"error": "use_dpop_nonce"}
            return JSONResponse(answer, 400, {"DPoP-Nonce": self.nonce})
        answer = await super().token(request)
        body = json.loads(bytes(answer.body))
        if "access_token" in body and not self.plain:
            body["token_type"] = "DPoP"
            self.keys[body["access_token"]] = thumbprint
        self.nonce = f"nonce-{len(self.forms)}"
        return JSONResponse(body, answer.status_code, {"DPoP-Nonce": self.nonce})


class Proving(Guarded):
    """Wants a proof with its own nonce for each request."""

    nonce = "mine-0"
    proofs: list[str]

    async def _admit(self, inner: Any, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme:
            assert scheme == "DPoP"
            _, claims, thumbprint = opened(headers["dpop"])
            assert claims["htu"] == self.url
            assert claims["htm"] == scope["method"]
            assert self.authority.keys[token] == thumbprint
            assert claims["jti"] not in self.proofs
            self.proofs.append(claims["jti"])
            if claims.get("nonce") != self.nonce:
                more = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": self.nonce}
                await Response(status_code=401, headers=more)(scope, receive, send)
                return
        await super()._admit(inner, scope, receive, send)


@asynccontextmanager
async def bound() -> AsyncIterator[tuple[Binding, Proving]]:
    issuer = Binding()
    server = Proving(issuer, resource_metadata={"dpop_signing_alg_values_supported": ["ES256"]})
    server.proofs = []

    def place(made: Any) -> Any:
        def make(origin: str) -> Any:
            made.origin = origin
            return made.app()

        return make

    async with serving(place(issuer)), serving(place(server)):
        yield issuer, server


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_bound_tokens_with_nonces_of_both(protocol: str):
    async with bound() as (issuer, server):
        async with Client(server.url, auth=person(), protocol=protocol) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            server.nonce = "mine-1"
            await client.call_tool("add", {"a": 1, "b": 2})
            issuer.tokens.clear()
            await client.call_tool("add", {"a": 1, "b": 2})
        assert len(issuer.asked) == 1
        assert issuer.count("refresh_token") == 1
        assert len(set(issuer.keys.values())) == 1
        assert issuer.registered[0]["dpop_bound_access_tokens"] is True


async def test_a_kept_token_is_kept_with_its_key(tmp_path: Any):
    async with bound() as (issuer, server):
        for _ in range(2):
            async with Client(server.url, auth=person(storage=FileStorage(tmp_path))) as client:
                await client.list_tools()
        assert len(issuer.asked) == 1


async def test_a_server_that_wants_another_nonce_each_time():
    async with bound() as (_, server):
        asked = iter(range(10_000))
        type(server).nonce = property(lambda self: f"n{next(asked)}")  # type: ignore[assignment]
        try:
            with pytest.raises(AuthorizationFailed, match="refused one request"):
                await Client(server.url, auth=person()).connect()
        finally:
            type(server).nonce = "mine-0"
        assert next(asked) < 30


async def test_no_less_than_what_was_asked_for(issuer: Authority, server: Guarded):
    with pytest.raises(AuthorizationFailed, match="cannot bind tokens"):
        await Client(server.url, auth=person(dpop=True)).connect()
    async with bound() as (binding, proving):
        binding.plain = True
        with pytest.raises(AuthorizationFailed, match="not bound"):
            await Client(proving.url, auth=person(dpop=True)).connect()


async def test_not_where_it_was_forbidden(issuer: Authority, server: Guarded):
    issuer.metadata = {"dpop_signing_alg_values_supported": ["ES256"]}
    server.resource_metadata = {"dpop_signing_alg_values_supported": ["ES256"]}
    async with Client(server.url, auth=person(dpop=False)) as client:
        await client.list_tools()
    assert "dpop" not in issuer.headers[0]


async def test_not_where_the_server_does_not_know_it(issuer: Authority, server: Guarded):
    issuer.metadata = {"dpop_signing_alg_values_supported": ["ES256"]}
    async with Client(server.url, auth=person()) as client:
        await client.list_tools()
    assert "dpop" not in issuer.headers[0]
