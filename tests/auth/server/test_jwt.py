"""Signed tokens: every algorithm, keys that change under traffic, and keys that cannot be had."""

import asyncio
import time
from typing import Any

import pytest

from mcpearl.auth import JWTVerifier, ResourceServer, TokenRefused, VerifierUnavailable
from mcpearl.auth.issuer import well_known
from mcpearl.auth.server import jose
from mcpearl.testing.clock import MovableClock
from tests.auth.server.issuer import AUDIENCE, Issuer, KeyPair, b64
from tests.auth.server.protected import as_bearer, make_app, structured
from tests.transports.raw_http import serving
from tests.waiting import eventually

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]


def verifier_of(issuer: Issuer, **options: Any) -> JWTVerifier:
    options.setdefault("jwks_url", issuer.jwks_url)
    return JWTVerifier(issuer=issuer.url, audience=AUDIENCE, **options)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "EdDSA"])
async def test_an_algorithm(issuer: Issuer, algorithm: str) -> None:
    issuer.rotate(algorithm)
    token = issuer.token(scope="a b", department="pearls")
    principal = await verifier_of(issuer).verify(token)
    assert principal.identity == (issuer.url, "alice", "app")
    assert principal.scopes == {"a", "b"}
    assert principal.claims["department"] == "pearls"
    others = [name for name in ("RS256", "ES256", "EdDSA") if name != algorithm]
    with pytest.raises(TokenRefused, match="algorithm is not allowed"):
        await verifier_of(issuer, algorithms=others).verify(token)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_no_signature_of_any_length_is_taken(issuer: Issuer, algorithm: str) -> None:
    issuer.rotate(algorithm)
    verifier = verifier_of(issuer)
    covered = issuer.token().rpartition(".")[0]
    for length in (1, 2, 3, 4, 8, 63, 64, 65, 96, 128, 255, 256, 257, 512, 4096):
        for filler in (b"\x00", b"\xff"):
            with pytest.raises(TokenRefused, match="signature is wrong"):
                await verifier.verify(f"{covered}.{b64(filler * length)}")


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b  c"}, {"a", "b", "c"}),
        ({"scp": ["a", "b"]}, {"a", "b"}),
        ({"scp": "a b"}, {"a", "b"}),
        ({"scope": ["a", 1, None]}, {"a"}),
        ({"scope": 7}, set()),
        ({}, set()),
    ],
)
async def test_scopes_are_read_in_every_spelling(
    issuer: Issuer, claims: dict[str, Any], scopes: set[str]
) -> None:
    assert (await verifier_of(issuer).verify(issuer.token(**claims))).scopes == scopes


async def test_times_have_some_slack(issuer: Issuer) -> None:
    now = int(time.time())
    verifier = verifier_of(issuer, leeway=10)
    await verifier.verify(issuer.token(exp=now - 5))
    await verifier.verify(issuer.token(nbf=now + 5))
    strict = verifier_of(issuer, leeway=0)
    with pytest.raises(TokenRefused, match="expired"):
        await strict.verify(issuer.token(exp=now - 5))
    with pytest.raises(TokenRefused, match="not valid yet"):
        await strict.verify(issuer.token(nbf=now + 5))


async def test_one_of_several_audiences_is_enough(issuer: Issuer) -> None:
    await verifier_of(issuer).verify(issuer.token(aud=["other", AUDIENCE]))
    several = JWTVerifier(issuer=issuer.url, audience=["x", "y"], jwks_url=issuer.jwks_url)
    await several.verify(issuer.token(aud="y"))
    for nobody in ("", [], [""]):
        with pytest.raises(ValueError, match="audience"):
            JWTVerifier(issuer=issuer.url, audience=nobody)


async def test_a_token_that_names_no_key(issuer: Issuer) -> None:
    issuer.rotate()
    key = issuer.keys[issuer.current]
    key.kid = None  # not in the token; the key set still has its name
    principal = await verifier_of(issuer).verify(key.sign(issuer.claims()))
    assert principal.subject == "alice"


async def test_unknown_algorithms_are_no_setting(issuer: Issuer) -> None:
    for names in (["HS256"], ["none"], ["RS256", "bogus"], []):
        with pytest.raises(ValueError, match="unknown algorithms"):
            verifier_of(issuer, algorithms=names)


# Where keys come from


async def test_keys_are_found_through_the_issuer(issuer: Issuer) -> None:
    verifier = verifier_of(issuer, jwks_url=None)
    for _ in range(3):
        await verifier.verify(issuer.token())
    assert issuer.asked == {
        "/.well-known/oauth-authorization-server": 1,
        "/.well-known/openid-configuration": 1,
        "/keys": 1,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://evil.example"},
        {"jwks_uri": None},
        {"jwks_uri": "http://192.168.0.1/keys"},
        {"jwks_uri": "https://169.254.169.254/keys"},
        {"jwks_uri": "file:///etc/passwd"},
    ],
)
async def test_metadata_that_must_not_be_followed(
    issuer: Issuer, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    issuer.metadata_changes = changes
    with pytest.raises(VerifierUnavailable):
        await verifier_of(issuer, jwks_url=None).verify(issuer.token())
    assert issuer.asked["/keys"] == 0
    assert "could not be fetched" in caplog.text


def test_where_an_issuer_says_who_it_is() -> None:
    assert well_known("https://a.example") == [
        "https://a.example/.well-known/oauth-authorization-server",
        "https://a.example/.well-known/openid-configuration",
    ]
    assert well_known("https://a.example/tenant1") == [
        "https://a.example/.well-known/oauth-authorization-server/tenant1",
        "https://a.example/.well-known/openid-configuration/tenant1",
        "https://a.example/tenant1/.well-known/openid-configuration",
    ]


# Keys change


async def test_keys_rotate_during_traffic(issuer: Issuer, clock: MovableClock) -> None:
    """Calls go on, with old tokens and new ones; a key that is gone is no longer believed."""
    verifier = verifier_of(issuer, keys_pause=0.1, keys_max_age=1)
    auth = ResourceServer(verifier, recheck=0.5)
    statuses: list[int] = []
    async with serving(make_app(), auth=auth) as client:
        done = asyncio.Event()

        async def traffic(user: str) -> None:
            while not done.is_set():
                answer = await as_bearer(client, issuer.token(sub=user)).call("whoami")
                statuses.append(answer.status)
                assert structured(answer)["subject"] == user
                await asyncio.sleep(0)

        running = [asyncio.create_task(traffic(f"user{number}")) for number in range(4)]
        old = issuer.token()
        first = issuer.current
        for algorithm in ("RS256", "EdDSA", "ES384"):
            answered = len(statuses)
            await eventually(lambda answered=answered: len(statuses) > answered + 10)
            clock.move(1)
            issuer.rotate(algorithm)
        assert (await as_bearer(client, old).call("whoami")).status == 200
        del issuer.keys[first]  # as after a theft

        async def refused() -> bool:
            clock.move(1.1)  # more than the token is known for, and more than the keys are good for
            return (await as_bearer(client, old).call("whoami")).status == 401

        await eventually(refused)
        answered = len(statuses)
        await eventually(lambda: len(statuses) > answered + 20)
        done.set()
        await asyncio.gather(*running)
    assert set(statuses) == {200}


async def test_unknown_keys_cause_few_fetches(issuer: Issuer, clock: MovableClock) -> None:
    verifier = verifier_of(issuer, keys_pause=30)
    await verifier.verify(issuer.token())
    clock.move(30)
    strangers = [KeyPair("ES256", f"stranger-{number}") for number in range(20)]

    async def refused(key: KeyPair) -> None:
        with pytest.raises(TokenRefused, match="no such key"):
            await verifier.verify(key.sign(issuer.claims()))

    await asyncio.gather(*(refused(key) for key in strangers * 10))
    for key in strangers:
        await refused(key)
    assert issuer.asked["/keys"] == 2
    clock.move(30)
    issuer.rotate()
    await verifier.verify(issuer.token())
    assert issuer.asked["/keys"] == 3


async def test_many_wait_for_one_fetch(issuer: Issuer) -> None:
    issuer.delay = 0.1
    verifier = verifier_of(issuer)
    tokens = [issuer.token(sub=f"user{number}") for number in range(50)]
    impatient = asyncio.ensure_future(verifier.verify(tokens[0]))
    await eventually(lambda: issuer.asked["/keys"])
    waiting = [asyncio.ensure_future(verifier.verify(token)) for token in tokens]
    await asyncio.sleep(0)
    impatient.cancel()
    found = await asyncio.gather(*waiting)
    assert [each.subject for each in found] == [f"user{number}" for number in range(50)]
    assert issuer.asked["/keys"] == 1


async def test_without_keys_the_client_is_asked_to_come_back(
    issuer: Issuer, clock: MovableClock
) -> None:
    """It is not asked to log in anew."""
    issuer.broken = True
    verifier = verifier_of(issuer, keys_pause=10)
    async with serving(make_app(), auth=verifier) as client:
        caller = as_bearer(client, issuer.token())
        answer = await caller.call("whoami")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "www-authenticate" not in answer.headers
        issuer.broken = False
        clock.move(10)
        assert (await caller.call("whoami")).status == 200


async def test_old_keys_are_good_while_there_are_no_new_ones(
    issuer: Issuer, caplog: pytest.LogCaptureFixture, clock: MovableClock
) -> None:
    verifier = verifier_of(issuer, keys_max_age=10, keys_pause=5)
    await verifier.verify(issuer.token())
    issuer.broken = True
    for number in range(4):
        clock.move(6)
        await verifier.verify(issuer.token(sub=f"user{number}"))
    assert "could not be fetched" in caplog.text
    # A silent issuer delays no request either, once it is known to fail.
    issuer.delay = 30
    clock.move(6)
    async with asyncio.timeout(10):
        await verifier.verify(issuer.token())


async def test_a_malformed_key_beside_a_good_one_costs_only_itself(issuer: Issuer) -> None:
    for operations in (None, 5, {}):
        strange = KeyPair("ES256", "strange")
        strange.jwk["key_ops"] = operations
        issuer.keys = {"strange": strange, **issuer.keys}
    verifier = JWTVerifier(issuer=issuer.url, audience=AUDIENCE, jwks_url=issuer.jwks_url)
    assert (await verifier.verify(issuer.token())).subject == "alice"


def test_a_key_set_with_strange_keys_in_it() -> None:
    good = KeyPair("ES256", "good").jwk
    assert jose.public_key(good) is not None
    strange: list[Any] = [
        None,
        "key",
        {},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "EC"},
        {"kty": "EC", "crv": "P-256", "x": "!", "y": "!"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "OKP", "crv": "X25519", "x": "AAAA"},
        {**good, "use": "enc"},
        {**good, "key_ops": ["encrypt"]},
        {**good, "key_ops": None},
        {**good, "key_ops": 5},
        {**good, "key_ops": {"verify": True}},
        {**good, "x": good["y"]},
        {**good, "x": 5},
        {**good, "crv": ["P-256"]},
    ]
    assert [jose.public_key(jwk) for jwk in strange] == [None] * len(strange)
