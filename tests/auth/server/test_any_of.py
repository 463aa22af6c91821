"""Several issuers for one server: each token is verified by its issuer, and clients learn of all."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl.auth import (
    AnyOf,
    ClientCertificates,
    IntrospectionVerifier,
    JWTVerifier,
    Principal,
    ResourceServer,
    StaticTokens,
    TokenRefused,
    VerifierUnavailable,
)
from tests.auth.server.issuer import AUDIENCE, Issuer, KeyPair, issuing, unsigned
from tests.auth.server.protected import as_bearer, challenge, make_app, structured
from tests.auth.server.test_dpop import bound, url_of
from tests.auth.server.test_dpop import call as call_with_proof
from tests.transports.raw_http import Raw, serving

STATIC = "static-0123456789abcdef"


@pytest.fixture
async def other() -> AsyncIterator[Issuer]:
    async with issuing() as running:
        yield running


def verifier(issuer: Issuer, audience: str = AUDIENCE, **options: Any) -> JWTVerifier:
    url = issuer.jwks_url
    return JWTVerifier(issuer=issuer.url, audience=audience, jwks_url=url, **options)


def asking(issuer: Issuer) -> IntrospectionVerifier:
    return IntrospectionVerifier(
        f"{issuer.url}/introspect",
        issuer=issuer.url,
        audience=AUDIENCE,
        client_id="mcp",
        client_secret="hush",
    )


def opaque(issuer: Issuer, token: str, **changes: Any) -> str:
    issuer.active[token] = {"active": True, **issuer.claims(**changes)}
    return token


async def who(client: Raw, token: str) -> tuple[str, str]:
    said = structured(await as_bearer(client, token).call("whoami"))
    return said["subject"], said["issuer"]


async def test_two_issuers(issuer: Issuer, other: Issuer) -> None:
    async with serving(make_app(auth=[verifier(issuer), verifier(other)])) as client:
        for _ in range(2):
            assert await who(client, issuer.token()) == ("alice", issuer.url)
            assert await who(client, other.token(sub="bob")) == ("bob", other.url)
        assert issuer.asked["/keys"] == other.asked["/keys"] == 1


async def test_the_same_subject_at_another_issuer_is_another_principal(
    issuer: Issuer, other: Issuer
) -> None:
    async with serving(make_app(auth=[verifier(issuer), verifier(other)])) as client:
        session = await client.initialize(Authorization=f"Bearer {issuer.token()}")
        assert (await session.ask("ping")).status == 200
        session.headers |= {"Authorization": f"Bearer {other.token()}"}
        assert (await session.ask("ping")).status == 404


async def test_who_a_token_says_it_is_from_is_not_believed(issuer: Issuer, other: Issuer) -> None:
    """Only the keys of the issuer it names count, whichever others are trusted here."""
    async with serving(make_app(auth=[verifier(issuer), verifier(other)])) as client:
        for forged in (
            issuer.token(iss=other.url),
            other.keys[other.current].sign(issuer.claims()),
            unsigned({"alg": "ES256"}, issuer.claims(), b"x" * 64),
            unsigned({"alg": "none"}, issuer.claims()),
            issuer.token(iss="https://nobody.example"),
            unsigned({"alg": "ES256"}, issuer.claims(iss=[issuer.url]), b"x" * 64),
            issuer.token(iss=None),
            "no-token-at-all",
        ):
            answer = await as_bearer(client, forged).call("whoami")
            assert answer.status == 401
            assert challenge(answer)[1]["error"] == "invalid_token"


async def test_clients_learn_of_all(issuer: Issuer, other: Issuer) -> None:
    auth = [verifier(issuer), verifier(other), StaticTokens({STATIC: Principal("bot")})]
    async with serving(make_app(auth=auth)) as client:
        refused = await client.call("whoami")
        assert refused.status == 401
        url = challenge(refused)[1]["resource_metadata"]
        path = url.removeprefix(f"http://127.0.0.1:{client.port}")
        document = (await client.request("GET", {}, path=path)).json
        assert document["authorization_servers"] == [issuer.url, other.url]
        assert await who(client, STATIC) == ("bot", None)


async def test_settings_around_several(issuer: Issuer, other: Issuer) -> None:
    auth = ResourceServer([verifier(issuer), verifier(other)], scopes=["mcp"])
    async with serving(make_app(), auth=auth) as client:
        assert (await as_bearer(client, other.token()).call("whoami")).status == 403
        assert await who(client, other.token(scope="mcp")) == ("alice", other.url)
    one = "https://mcp.example/mcp"
    same = ResourceServer([verifier(issuer, one), verifier(other, one)])
    assert same.resource == one
    assert ResourceServer([verifier(issuer, one), verifier(other, one + "/b")]).resource is None
    named = ResourceServer(AnyOf(verifier(issuer), verifier(other)), authorization_servers=["x"])
    assert named.authorization_servers == ["x"]


async def test_bound_tokens_of_any(issuer: Issuer, other: Issuer) -> None:
    async with serving(make_app(auth=[verifier(issuer), verifier(other)])) as client:
        key = KeyPair("ES256")
        for each in (issuer, other):
            token = bound(each, key)
            answer = await call_with_proof(client, token, key.proof(token, url_of(client)))
            assert structured(answer)["issuer"] == each.url


async def test_opaque_tokens_beside(issuer: Issuer, other: Issuer) -> None:
    """No token is shown to an issuer it cannot be of."""
    async with serving(make_app(auth=[verifier(issuer), asking(other)])) as client:
        assert await who(client, opaque(other, "opaque-token-1")) == ("alice", other.url)
        assert await who(client, issuer.token()) == ("alice", issuer.url)
        assert other.asked["/introspect"] == 1
        bad = issuer.token(aud="urn:somebody:else")
        assert (await as_bearer(client, bad).call("whoami")).status == 401
        foreign = issuer.token(iss="https://nobody.example")
        assert (await as_bearer(client, foreign).call("whoami")).status == 401
        assert other.asked["/introspect"] == 1
        assert (await as_bearer(client, "opaque-token-2").call("whoami")).status == 401
        assert other.asked["/introspect"] == 2


async def test_one_that_cannot_tell(issuer: Issuer, other: Issuer) -> None:
    """Where one is out of reach the others go on; its own are refused for the moment, not for good."""
    other.broken = True
    async with serving(make_app(auth=[verifier(issuer), verifier(other)])) as client:
        assert await who(client, issuer.token()) == ("alice", issuer.url)
        assert (await as_bearer(client, other.token()).call("whoami")).status == 503


async def test_several_of_one_issuer(issuer: Issuer) -> None:
    both = AnyOf(verifier(issuer, "urn:one"), verifier(issuer, "urn:two"))
    for audience in ("urn:one", "urn:two"):
        assert (await both.verify(issuer.token(aud=audience))).subject == "alice"
    with pytest.raises(TokenRefused, match="another audience"):
        await both.verify(issuer.token())
    assert both.issuers == [issuer.url]
    nested = AnyOf(both, StaticTokens({STATIC: Principal("bot")}))
    assert (await nested.verify(issuer.token(aud="urn:two"))).subject == "alice"
    assert (await nested.verify(STATIC)).subject == "bot"


async def test_the_first_reason_counts() -> None:
    class Says:
        def __init__(self, outcome: Any) -> None:
            self.outcome = outcome

        async def verify(self, token: str) -> Principal | None:
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return self.outcome

    refused, down = TokenRefused("first"), VerifierUnavailable("down")
    assert await AnyOf(Says(refused), Says(down), Says(Principal("a"))).verify("t")
    with pytest.raises(VerifierUnavailable, match="down"):
        await AnyOf(Says(refused), Says(down), Says(None)).verify("t")
    with pytest.raises(TokenRefused, match="first"):
        await AnyOf(Says(None), Says(refused), Says(TokenRefused("second"))).verify("t")
    with pytest.raises(TokenRefused, match="not known"):
        await AnyOf(Says(None)).verify("t")


async def test_what_a_list_cannot_be(issuer: Issuer, other: Issuer) -> None:
    with pytest.raises(ValueError, match="at least one verifier"):
        make_app(auth=[]).asgi()
    with pytest.raises(ValueError, match="at least one verifier"):
        make_app(auth=verifier(issuer)).asgi(auth=[])
    with pytest.raises(TypeError, match="ClientCertificates has no `verify`"):
        make_app(auth=[verifier(issuer), ClientCertificates()]).asgi()
    with pytest.raises(ValueError, match="shown to all of"):
        AnyOf(asking(issuer), asking(other))
    with pytest.raises(TypeError, match="`auth` is a str"):
        make_app(auth="https://login.example").asgi()
