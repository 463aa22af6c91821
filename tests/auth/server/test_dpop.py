"""Tokens bound to a key (RFC 9449): each request proves possession anew, and each proof is good once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl.auth import JWTVerifier, ResourceServer, TokenRefused, VerifierUnavailable
from mcpearl.auth.server.dpop_proof import ProofChecker, same_place
from mcpearl.auth.server.proof_memory import OwnProofs
from mcpearl.testing.clock import MovableClock
from tests.auth.server.issuer import AUDIENCE, Issuer, KeyPair, unsigned
from tests.auth.server.protected import as_bearer, challenge, make_app, structured
from tests.deployment.machines import two_machines
from tests.transports.raw_http import Raw, Response, serving


def protect(issuer: Issuer, **options: Any) -> ResourceServer:
    verifier = JWTVerifier(issuer=issuer.url, audience=AUDIENCE, jwks_url=issuer.jwks_url)
    return ResourceServer(verifier, **options)


@pytest.fixture
async def client(issuer: Issuer) -> AsyncIterator[Raw]:
    async with serving(make_app(), auth=protect(issuer)) as raw:
        yield raw


@pytest.fixture
def key() -> KeyPair:
    return KeyPair("ES256")


def bound(issuer: Issuer, key: KeyPair, **changes: Any) -> str:
    return issuer.token(cnf={"jkt": key.thumbprint}, **changes)


async def call(client: Raw, token: str, proof: str | None, tool: str = "whoami") -> Response:
    other = Raw(client.port)
    other.headers = {"Authorization": f"DPoP {token}", "DPoP": proof}
    return await other.call(tool)


def url_of(client: Raw) -> str:
    return f"http://127.0.0.1:{client.port}/mcp"


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS384", "EdDSA"])
async def test_a_bound_token_with_its_proof(client: Raw, issuer: Issuer, algorithm: str) -> None:
    key = KeyPair(algorithm)
    token = bound(issuer, key)
    for _ in range(3):
        answer = await call(client, token, key.proof(token, url_of(client)))
        assert structured(answer)["subject"] == "alice"


async def test_a_proof_is_good_once(
    client: Raw, issuer: Issuer, key: KeyPair, caplog: pytest.LogCaptureFixture
) -> None:
    token = bound(issuer, key)
    proof = key.proof(token, url_of(client))
    assert (await call(client, token, proof)).status == 200
    for _ in range(3):
        replayed = await call(client, token, proof)
        assert replayed.status == 401
        scheme, said = challenge(replayed)
        assert (scheme, said["error"]) == ("DPoP", "invalid_dpop_proof")
        assert "used before" in said["error_description"]
        assert "ES256" in said["algs"].split()
    assert "the DPoP proof was used before" in caplog.text


async def test_the_same_id_with_another_key_is_another_proof(client: Raw, issuer: Issuer) -> None:
    for _ in range(2):
        key = KeyPair("ES256")
        token = bound(issuer, key)
        proof = key.proof(token, url_of(client), jti="one")
        assert (await call(client, token, proof)).status == 200


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another method": ({"htm": "GET"}, "another method"),
    "another host": ({"htu": "http://other.example/mcp"}, "another URL"),
    "another path": ({"htu": "http://127.0.0.1/other"}, "another URL"),
    "an address that is none": ({"htu": "http://[::1"}, "another URL"),
    "no address": ({"htu": None}, "another URL"),
    "another token": ({"ath": "AAAA"}, "another token"),
    "no token": ({"ath": None}, "another token"),
    "too old": ({"iat": 1_000_000}, "too old or from the future"),
    "from the future": ({"iat": 4_000_000_000}, "too old or from the future"),
    "no time": ({"iat": None}, "when it was made"),
    "no id": ({"jti": None}, "no usable `jti`"),
    "an endless id": ({"jti": "x" * 1000}, "no usable `jti`"),
    "an id that is no text": ({"jti": 5}, "no usable `jti`"),
    "another type": ({"headers": {"typ": "JWT"}}, "does not have the type"),
    "no key in it": ({"headers": {"jwk": None}}, "not signed by its key"),
    "another key in it": ({"headers": {"jwk": KeyPair("ES256").jwk}}, "made with another key"),
    "a key without members": ({"headers": {"jwk": {"kty": "EC"}}}, "not signed by its key"),
    "a type that is not text": ({"headers": {"jwk": {"kty": []}}}, "not signed by its key"),
    "a private key in it": (
        {"headers": {"jwk": {**KeyPair("ES256").jwk, "d": "AAAA"}}},
        "contains a private key",
    ),
    "a symmetric key in it": (
        {"headers": {"jwk": {"kty": "oct", "k": "c2VjcmV0"}}},
        "contains a private key",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_proof_that_is_refused(
    client: Raw, issuer: Issuer, key: KeyPair, wrong: str
) -> None:
    changes, reason = WRONG[wrong]
    token = bound(issuer, key)
    answer = await call(client, token, key.proof(token, url_of(client), **changes))
    assert answer.status == 401
    scheme, said = challenge(answer)
    assert (scheme, said["error"]) == ("DPoP", "invalid_dpop_proof")
    assert reason in said["error_description"]


@pytest.mark.parametrize(
    "odd",
    [{"key_ops": 5}, {"key_ops": None}, {"use": []}, {"alg": {}}, {"kid": [1]}, {"ext": 5}],
    ids=str,
)
async def test_a_proof_whose_key_is_odd_is_refused_or_taken(
    client: Raw, issuer: Issuer, key: KeyPair, odd: dict[str, Any]
) -> None:
    token = bound(issuer, key)
    proof = key.proof(token, url_of(client), headers={"jwk": {**key.jwk, **odd}})
    answer = await call(client, token, proof)
    assert answer.status in (200, 401)
    if answer.status == 401:
        assert challenge(answer)[1]["error"] == "invalid_dpop_proof"


def test_of_another_key_not_even_the_signature_is_looked_at(
    key: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpearl.auth.server.jose.public_key", lambda _: pytest.fail("imported"))
    proof = KeyPair("RS256").proof("t", "http://a.example/")
    checker = ProofChecker(max_age=60, memory=OwnProofs(10), nonces=None)
    with pytest.raises(TokenRefused, match="another key"):
        checker.check(proof.encode(), "POST", "http://a.example/", "t", key.thumbprint)


async def test_no_proof_two_proofs_and_no_proof_at_all(
    client: Raw, issuer: Issuer, key: KeyPair
) -> None:
    token, url = bound(issuer, key), url_of(client)
    two = f"{key.proof(token, url)}\r\nDPoP: {key.proof(token, url)}"
    none = unsigned({"alg": "none", "typ": "dpop+jwt", "jwk": key.jwk}, {"htm": "POST"}, b"x")
    for proof in (None, "", two, "nonsense", "\xff", none):
        answer = await call(client, token, proof)
        assert challenge(answer)[1]["error"] == "invalid_dpop_proof"


async def test_a_stolen_token_is_of_no_use(client: Raw, issuer: Issuer, key: KeyPair) -> None:
    token = bound(issuer, key)
    thief = KeyPair("ES256")
    answer = await call(client, token, thief.proof(token, url_of(client)))
    assert answer.status == 401
    assert "another key" in challenge(answer)[1]["error_description"]
    plain = await as_bearer(client, token).call("whoami")
    assert plain.status == 401
    assert "send it as DPoP" in challenge(plain)[1]["error_description"]
    # Also when its owner has just used it, so that it is known.
    assert (await call(client, token, key.proof(token, url_of(client)))).status == 200
    assert (await as_bearer(client, token).call("whoami")).status == 401
    assert (await call(client, token, None)).status == 401


async def test_a_token_that_is_not_bound_is_not_dressed_up(
    client: Raw, issuer: Issuer, key: KeyPair
) -> None:
    token = issuer.token()
    answer = await call(client, token, key.proof(token, url_of(client)))
    assert answer.status == 401
    assert "not bound" in challenge(answer)[1]["error_description"]


async def test_bound_tokens_can_be_required(issuer: Issuer, key: KeyPair) -> None:
    async with serving(make_app(), auth=protect(issuer, dpop="required")) as client:
        for answer in (
            await client.call("whoami"),
            await as_bearer(client, issuer.token()).call("whoami"),
        ):
            assert answer.status == 401
            scheme, said = challenge(answer)
            assert scheme == "DPoP"
            assert {"algs", "resource_metadata"} <= said.keys()
        where = "/.well-known/oauth-protected-resource"
        document = (await client.request("GET", {}, path=where)).json
        assert document["dpop_bound_access_tokens_required"] is True
        token = bound(issuer, key)
        assert (await call(client, token, key.proof(token, url_of(client)))).status == 200


async def test_a_proof_may_need_this_servers_nonce(issuer: Issuer, key: KeyPair) -> None:
    async with serving(make_app(), auth=protect(issuer, dpop_nonces=True)) as client:
        token, url = bound(issuer, key), url_of(client)
        for nonce in (None, "guessed", 5):
            answer = await call(client, token, key.proof(token, url, nonce=nonce))
            assert answer.status == 401
            assert challenge(answer)[1]["error"] == "use_dpop_nonce"
        given = answer.headers["dpop-nonce"]
        for _ in range(2):
            assert (await call(client, token, key.proof(token, url, nonce=given))).status == 200


async def test_a_nonce_of_one_machine_is_good_at_all(issuer: Issuer, key: KeyPair) -> None:
    async with two_machines(auth=protect(issuer, dpop_nonces=True)) as (one, two):
        token, url = bound(issuer, key), url_of(two.raw)
        refused = await call(one.raw, token, key.proof(token, url_of(one.raw)), "known")
        assert challenge(refused)[1]["error"] == "use_dpop_nonce"
        proof = key.proof(token, url, nonce=refused.headers["dpop-nonce"])
        assert (await call(two.raw, token, proof, "known")).status == 200
        again = await call(two.raw, token, proof, "known")
        assert "used before" in challenge(again)[1]["error_description"]


async def test_a_proof_that_one_machine_took_is_refused_by_all(
    issuer: Issuer, key: KeyPair
) -> None:
    async with two_machines(auth=protect(issuer)) as (one, two):
        url, token = url_of(one.raw), bound(issuer, key)
        for first, second in ((one, two), (two, one), (two, two)):
            proof = key.proof(token, url)
            said = {"Authorization": f"DPoP {token}", "DPoP": proof}
            said["Host"] = f"127.0.0.1:{one.raw.port}"  # both are reached by one name
            answers = []
            for machine in (first, second):
                at = Raw(machine.raw.port)
                at.headers = dict(said)
                answers.append(await at.call("add", {"a": 1, "b": 2}))
            taken, replayed = answers
            assert (taken.status, replayed.status) == (200, 401)
            assert "used before" in challenge(replayed)[1]["error_description"]


async def test_a_nonce_ends(clock: MovableClock, key: KeyPair) -> None:
    proofs = ProofChecker(max_age=1e6, nonces=lambda: [b"secret"], memory=OwnProofs(100))
    nonce = proofs.nonce()
    url = "https://mcp.example/mcp"

    def check() -> None:
        proof = key.proof("token", url, nonce=nonce).encode()
        proofs.check(proof, "POST", url, "token", key.thumbprint)

    check()
    clock.move(121)
    with pytest.raises(TokenRefused, match="needs the nonce"):
        check()


async def test_too_few_scopes_are_told_in_the_same_scheme(
    client: Raw, issuer: Issuer, key: KeyPair
) -> None:
    token = bound(issuer, key)
    answer = await call(client, token, key.proof(token, url_of(client)), "write")
    assert answer.status == 403
    scheme, said = challenge(answer)
    assert (scheme, said["scope"]) == ("DPoP", "notes:write")


async def test_what_is_remembered_is_bounded_and_forgotten(
    clock: MovableClock, key: KeyPair
) -> None:
    """At the bound nothing is forgotten early: that would let a proof be used twice."""
    url, thumbprint = "https://mcp.example/mcp", key.thumbprint
    proofs = ProofChecker(max_age=5, nonces=None, memory=OwnProofs(40))
    made = [key.proof("token", url).encode() for _ in range(10)]
    for proof in made:
        proofs.check(proof, "POST", url, "token", thumbprint)
    one_more = key.proof("token", url).encode()
    with pytest.raises(VerifierUnavailable):  # a quarter of the room is one key's
        proofs.check(one_more, "POST", url, "token", thumbprint)
    with pytest.raises(TokenRefused, match="used before"):
        proofs.check(made[0], "POST", url, "token", thumbprint)
    others = [KeyPair("ES256") for _ in range(4)]
    taken = 0
    for other in others:
        for _ in range(10):
            try:
                proofs.check(
                    other.proof("token", url).encode(), "POST", url, "token", other.thumbprint
                )
            except VerifierUnavailable:
                continue
            taken += 1
    assert taken == 30
    clock.move(7)
    with pytest.raises(TokenRefused, match="too old or from the future"):
        proofs.check(made[0], "POST", url, "token", thumbprint)
    proofs.check(key.proof("token", url).encode(), "POST", url, "token", thumbprint)


def test_places() -> None:
    here = "https://mcp.example/mcp"
    for same in ("https://MCP.example:443/mcp", "HTTPS://mcp.example/mcp?x=1#y"):
        assert same_place(same, here)
    for other in (None, 5, "", "https://mcp.example", "https://mcp.example/mcp/", "/mcp"):
        assert not same_place(other, here)
    assert same_place("https://mcp.example", "https://mcp.example/")
