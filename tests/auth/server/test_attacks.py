"""Tokens that must not get in, each over real HTTP: refused, logged, and nothing of them is told."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from mcpearl.auth import JWTVerifier
from tests.auth.server.issuer import AUDIENCE, Issuer, KeyPair, b64, issuing, unsigned
from tests.auth.server.protected import as_bearer, bearer, challenge, make_app, structured
from tests.transports.raw_http import Raw, modern, serving
from tests.waiting import eventually

LEEWAY = 30


@pytest.fixture
async def client(issuer: Issuer) -> AsyncIterator[Raw]:
    verifier = JWTVerifier(issuer=issuer.url, audience=AUDIENCE, jwks_url=issuer.jwks_url)
    async with serving(make_app(), auth=verifier) as raw:
        yield raw


def other_key(issuer: Issuer) -> str:
    """Signed by another key, under the name of a real one."""
    return KeyPair("ES256", issuer.current).sign(issuer.claims())


def hs256_with_the_public_key(issuer: Issuer, encoding: str) -> str:
    """The classic confusion: the public key taken for the secret of an HMAC."""
    issuer.rotate("RS256")
    key = issuer.keys[issuer.current]
    secret = {
        "pem": key.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        "jwk": json.dumps(key.jwk).encode(),
        "n": key.jwk["n"].encode(),
    }[encoding]
    token = unsigned({"alg": "HS256", "typ": "JWT", "kid": key.kid}, issuer.claims())
    covered = token.rpartition(".")[0]
    return f"{covered}.{b64(hmac.digest(secret, covered.encode(), 'sha256'))}"


def another_algorithm(issuer: Issuer) -> str:
    """An elliptic key's signature in an RSA token's clothes."""
    return unsigned({"alg": "RS256", "kid": issuer.current}, issuer.claims(), b"x" * 256)


def altered(issuer: Issuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{b64(json.dumps(issuer.claims(sub='root')).encode())}.{signature}"


def embedded_key(issuer: Issuer) -> str:
    """A token that brings the key it wants to be checked with."""
    own = KeyPair("ES256")
    return own.sign(issuer.claims(), {"jwk": own.jwk})


def linked_key(issuer: Issuer) -> str:
    own = KeyPair("ES256", issuer.current)
    return own.sign(issuer.claims(), {"jku": f"{issuer.url}/keys", "x5u": f"{issuer.url}/keys"})


def small_rsa(issuer: Issuer) -> str:
    """Published, but too weak to be believed."""
    weak = KeyPair("RS256", "weak", bits=1024)
    issuer.keys["weak"] = weak
    return weak.sign(issuer.claims())


ATTACKS: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "another audience": (lambda i: i.token(aud="urn:test:other"), "another audience"),
    "a longer audience": (lambda i: i.token(aud=AUDIENCE + "/admin"), "another audience"),
    "several other audiences": (lambda i: i.token(aud=["a", "b"]), "another audience"),
    "no audience": (lambda i: i.token(aud=None), "no audience"),
    "another issuer": (lambda i: i.token(iss="https://evil.example"), "another issuer"),
    "no issuer": (lambda i: i.token(iss=None), "another issuer"),
    "another key": (other_key, "signature is wrong"),
    "a key the issuer does not have": (
        lambda i: KeyPair("ES256", "nobody").sign(i.claims()),
        "no such key",
    ),
    "a key it brings": (embedded_key, "signature is wrong"),
    "a key it points to": (linked_key, "signature is wrong"),
    "a weak key": (small_rsa, "no such key"),
    "none": (lambda i: unsigned({"alg": "none"}, i.claims()), "not a signed JWT"),
    "none with something behind": (
        lambda i: unsigned({"alg": "none"}, i.claims(), b"x"),
        "algorithm is not allowed",
    ),
    "NoNe": (
        lambda i: unsigned({"alg": "NoNe"}, i.claims(), b"x"),
        "algorithm is not allowed",
    ),
    "an algorithm that is no text": (
        lambda i: unsigned({"alg": ["ES256"]}, i.claims(), b"x"),
        "algorithm is not allowed",
    ),
    "HS256 with the PEM": (
        lambda i: hs256_with_the_public_key(i, "pem"),
        "algorithm is not allowed",
    ),
    "HS256 with the JWK": (
        lambda i: hs256_with_the_public_key(i, "jwk"),
        "algorithm is not allowed",
    ),
    "HS256 with the modulus": (
        lambda i: hs256_with_the_public_key(i, "n"),
        "algorithm is not allowed",
    ),
    "another algorithm than the key's": (another_algorithm, "no such key"),
    "expired": (lambda i: i.token(exp=int(time.time()) - LEEWAY - 1), "has expired"),
    "never expiring": (lambda i: i.token(exp=None), "when it expires"),
    "an expiry that is no time": (
        lambda i: unsigned({"alg": "ES256"}, i.claims(exp="soon"), b"x"),
        "`exp` is not a time",
    ),
    "an expiry beyond all times": (
        lambda i: unsigned({"alg": "ES256"}, i.claims(exp=10**400), b"x"),
        "`exp` is not a time",
    ),
    "not yet valid": (lambda i: i.token(nbf=int(time.time()) + LEEWAY + 5), "not valid yet"),
    "issued in the future": (lambda i: i.token(iat=int(time.time()) + 3600), "not valid yet"),
    "altered": (altered, "signature is wrong"),
    "signature cut off": (lambda i: i.token().rpartition(".")[0] + ".", "not a signed JWT"),
    "five parts, as if encrypted": (lambda i: "a.b.c.d.e", "not a signed JWT"),
    "no JWT": (lambda i: "0123456789abcdef", "not a signed JWT"),
    "another kind of token": (
        lambda i: i.token({"typ": "dpop+jwt"}),
        "not an access token",
    ),
    "critical extensions": (
        lambda i: unsigned({"alg": "ES256", "crit": ["b64"]}, i.claims(), b"x"),
        "extensions",
    ),
    "nobody": (lambda i: i.token(sub=None, client_id=None), "neither a subject nor a client"),
}


@pytest.mark.filterwarnings("ignore:.*2048 bits")  # one of the keys is weak on purpose
@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_token_that_is_refused(
    attack: str, client: Raw, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    make, reason = ATTACKS[attack]
    token = make(issuer)
    answer = await as_bearer(client, token).call("whoami")
    assert answer.status == 401
    scheme, said = challenge(answer)
    assert (scheme, said["error"]) == ("Bearer", "invalid_token")
    assert reason in said["error_description"]
    assert reason in answer.json["error"]["message"]
    logged = [record.getMessage() for record in caplog.records if record.name == "mcpearl.auth"]
    assert any(line.startswith("refused 127.0.0.1: the token") for line in logged)
    assert any(reason in line for line in logged)
    for part in token.split("."):
        assert len(part) < 8 or part not in caplog.text
        assert len(part) < 8 or part.encode() not in answer.body
    assert (await as_bearer(client, issuer.token()).call("whoami")).status == 200


async def test_the_method_and_version_do_not_matter(client: Raw, issuer: Issuer) -> None:
    """Every request is asked for its token: there is no way around the door."""
    wrong = as_bearer(client, issuer.token(aud="urn:test:other"))
    for who in (client, wrong):
        assert (await who.get()).status == 401
        assert (await who.delete()).status == 401
        assert (await who.post({"jsonrpc": "2.0", "method": "ping", "id": 1})).status == 401
        assert (await who.post(b"[]")).status == 401
        assert (await who.post(b"no json")).status == 401
        assert (await who.request("PUT", {})).status == 401


async def test_a_token_in_the_query_string_is_refused(
    client: Raw, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    token = issuer.token()
    headers, body = modern("tools/call", {"name": "whoami", "arguments": {}})
    for also in ({}, bearer(token)):
        # Also when the header is right and known already: an address ends up in logs.
        await as_bearer(client, token).call("whoami")
        for query in (f"access_token={token}", f"x=1&ACCESS_token={token}", "access_token="):
            answer = await client.post(body, {**headers, **also}, path=f"/mcp?{query}")
            assert answer.status == 400
            assert challenge(answer)[1]["error"] == "invalid_request"
            assert token.encode() not in answer.body
    assert "a token in the query string" in caplog.text
    assert token not in caplog.text


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("Bearer", 400),
        ("Bearer ", 400),
        ("Bearer a b", 400),
        ("Bearer aaa, Bearer bbb", 400),
        ("Bearer a\x80b", 400),
        ("DPoP ", 400),
        ("Basic dXNlcjpwYXNz", 401),
        ("Negotiate abc", 401),
        ("Bearer " + "a" * 20_000, 400),
    ],
)
async def test_what_carries_no_token(client: Raw, given: str, status: int) -> None:
    client.headers = {"Authorization": given}
    answer = await client.call("whoami")
    assert answer.status == status
    assert "resource_metadata" in challenge(answer)[1]


async def test_two_headers_are_not_one(client: Raw, issuer: Issuer) -> None:
    """Who is between may have read the first one, or the last one."""
    token = issuer.token()
    headers, body = modern("tools/call", {"name": "whoami", "arguments": {}})
    doubled = {**headers, "Authorization": f"Bearer {token}\r\nAuthorization: Bearer other"}
    answer = await client.post(body, doubled)
    assert answer.status == 400


async def test_a_stolen_session_id_is_of_no_use(client: Raw, issuer: Issuer) -> None:
    alice = await client.initialize(**bearer(issuer.token()))  # type: ignore[arg-type]
    assert (await alice.ask("ping")).status == 200
    thieves: list[dict[str, Any]] = [
        {"sub": "eve"},
        {"client_id": "other-app"},
        {"sub": "eve", "scope": "admin"},
    ]
    for claims in thieves:
        alice.headers["Authorization"] = f"Bearer {issuer.token(**claims)}"
        assert (await alice.ask("ping")).status == 404
        assert (await alice.get()).status == 404
        assert (await alice.get({"Last-Event-ID": "s.0"})).status == 404
        assert (await alice.delete()).status == 404
    alice.headers["Authorization"] = None
    assert (await alice.ask("ping")).status == 401
    alice.headers["Authorization"] = f"Bearer {issuer.token(jti='refreshed')}"
    assert (await alice.ask("ping")).status == 200


async def test_the_state_of_a_call_belongs_to_who_began_it(client: Raw, issuer: Issuer) -> None:
    asked = await as_bearer(client, issuer.token()).call("ask")
    result = asked.json["result"]
    assert result["resultType"] == "input_required"
    (key,) = result["inputRequests"]
    params = {
        "name": "ask",
        "arguments": {},
        "requestState": result["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {"city": "Oslo"}}},
    }
    headers, body = modern("tools/call", params)
    eve = await as_bearer(client, issuer.token(sub="eve")).post(body, headers)
    assert "another principal" in eve.json["error"]["message"]
    # The same principal with a fresher token goes on.
    again = await as_bearer(client, issuer.token(jti="fresh")).post(body, headers)
    assert "Oslo" in again.json["result"]["content"][0]["text"]


async def test_ten_thousand_wrong_tokens_while_others_are_served(
    client: Raw, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """As fast as they come, each another one; callers with a good token are still served."""
    good = as_bearer(client, issuer.token())
    assert (await good.call("whoami")).status == 200
    fetches = issuer.asked["/keys"]
    wrong = [_wrong(issuer, number) for number in range(200)]
    headers, body = modern("tools/call", {"name": "whoami", "arguments": {}})
    data = json.dumps(body).encode()
    fixed = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
    served = 0

    async def flood(share: int) -> int:
        """Send one share of the tokens on one connection, and count the refusals."""
        reader, writer = await client.connect()
        refused = 0
        for start in range(0, 500, 10):
            tokens = [f"{wrong[(start + n) % 200]}{share:02}{start + n:03}" for n in range(10)]
            heads = [client.head("POST", {**fixed, **bearer(token)}) for token in tokens]
            writer.write(b"".join(head + data for head in heads))
            for _ in tokens:
                head = await reader.readuntil(b"\r\n\r\n")
                refused += head.startswith(b"HTTP/1.1 401")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
        writer.close()
        return refused

    async def go_on(done: asyncio.Event) -> None:
        nonlocal served
        while not done.is_set():
            assert structured(await good.call("whoami"))["subject"] == "alice"
            served += 1

    done = asyncio.Event()
    other = asyncio.create_task(go_on(done))
    async with asyncio.timeout(90):
        refused = await asyncio.gather(*(flood(share) for share in range(20)))
    done.set()
    await other
    assert sum(refused) == 10_000
    assert served > 10
    assert issuer.asked["/keys"] - fetches < 20  # unknown keys are looked for, but seldom

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "mcpearl.auth"]

    # The rest is counted at the end of the second they came in.
    await eventually(lambda: any("more requests within a second" in line for line in told()))
    assert len(told()) < 2000


def _wrong(issuer: Issuer, number: int) -> str:
    """Of every kind: no JWT, another audience, an unknown key, a wrong signature."""
    match number % 4:
        case 0:
            return hashlib.sha256(b"%d" % number).hexdigest()
        case 1:
            return issuer.token(aud="urn:test:other")
        case 2:
            return unsigned({"alg": "ES256", "kid": f"k{number}"}, issuer.claims(), b"x" * 62)
    return unsigned({"alg": "ES256", "kid": issuer.current}, issuer.claims(), b"y" * 62)


async def test_one_issuer_cannot_speak_for_another(issuer: Issuer) -> None:
    """Two servers, two issuers: what one signs is nothing to the other."""
    async with issuing() as second:
        verifier = JWTVerifier(issuer=second.url, audience=AUDIENCE, jwks_url=second.jwks_url)
        async with serving(make_app(), auth=verifier) as client:
            for claims in ({}, {"iss": second.url}):
                answer = await as_bearer(client, issuer.token(**claims)).call("whoami")
                assert answer.status == 401
            assert (await as_bearer(client, second.token()).call("whoami")).status == 200
