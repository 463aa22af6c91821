"""Opaque tokens: their issuer is asked, once, by a known name, and not too often."""

import asyncio
import base64
from typing import Any

import pytest

from mcpearl.auth import IntrospectionVerifier, ResourceServer, TokenRefused, VerifierUnavailable
from mcpearl.testing.clock import MovableClock
from tests.auth.server.issuer import AUDIENCE, Issuer
from tests.auth.server.protected import as_bearer, make_app, structured
from tests.transports.raw_http import serving
from tests.waiting import eventually

TOKEN = "opaque-0123456789"


def verifier_of(issuer: Issuer, **options: Any) -> IntrospectionVerifier:
    return IntrospectionVerifier(
        f"{issuer.url}/introspect",
        issuer=issuer.url,
        audience=AUDIENCE,
        client_id="mcp server",
        client_secret="s3:cr3t",
        **options,
    )


def activate(issuer: Issuer, token: str = TOKEN, **changes: Any) -> None:
    issuer.active[token] = {"active": True, **issuer.claims(scope="a b"), **changes}


async def test_an_active_token(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    activate(issuer)
    async with serving(make_app(), auth=verifier_of(issuer)) as client:
        for _ in range(5):
            answer = structured(await as_bearer(client, TOKEN).call("whoami"))
            assert (answer["subject"], answer["scopes"]) == ("alice", ["a", "b"])
    assert issuer.asked["/introspect"] == 1
    login = base64.b64encode(b"mcp+server:s3%3Acr3t").decode()
    assert issuer.logins == [f"Authorization: Basic {login}"]
    assert TOKEN not in caplog.text
    assert "cr3t" not in caplog.text


async def test_a_revoked_token_ends_within_the_setting(issuer: Issuer, clock: MovableClock) -> None:
    activate(issuer)
    auth = ResourceServer(verifier_of(issuer), recheck=20)
    async with serving(make_app(), auth=auth) as client:
        caller = as_bearer(client, TOKEN)
        assert (await caller.call("whoami")).status == 200
        issuer.active.clear()
        assert (await caller.call("whoami")).status == 200
        clock.move(20)
        assert (await caller.call("whoami")).status == 401
        assert issuer.asked["/introspect"] == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"active": False}, "not active"),
        ({"active": "true"}, "not active"),
        ({"active": 1}, "not active"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "no audience"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"exp": 1}, "expired"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"exp": "soon"}, "is not a time"),
        ({"sub": None, "client_id": ""}, "neither a subject nor a client"),
    ],
)
async def test_a_token_that_is_refused(
    issuer: Issuer, changes: dict[str, Any], reason: str
) -> None:
    activate(issuer, **changes)
    with pytest.raises(TokenRefused, match=reason):
        await verifier_of(issuer).verify(TOKEN)


async def test_an_issuer_need_not_name_itself(issuer: Issuer) -> None:
    activate(issuer)
    del issuer.active[TOKEN]["iss"], issuer.active[TOKEN]["exp"]
    principal = await verifier_of(issuer).verify(TOKEN)
    assert (principal.issuer, principal.expires) == (issuer.url, None)


async def test_an_issuer_that_does_not_answer(issuer: Issuer) -> None:
    issuer.broken = True
    async with serving(make_app(), auth=verifier_of(issuer)) as client:
        answer = await as_bearer(client, TOKEN).call("whoami")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        issuer.broken = False
        activate(issuer)
        assert (await as_bearer(client, TOKEN).call("whoami")).status == 200


async def test_one_question_for_many_requests_with_one_token(issuer: Issuer) -> None:
    activate(issuer)
    issuer.delay = 1
    verifier = verifier_of(issuer)
    impatient = asyncio.ensure_future(verifier.verify(TOKEN))
    await eventually(lambda: issuer.asked["/introspect"])
    waiting = [asyncio.ensure_future(verifier.verify(TOKEN)) for _ in range(20)]
    await asyncio.sleep(0)
    impatient.cancel()
    assert {each.subject for each in await asyncio.gather(*waiting)} == {"alice"}
    assert issuer.asked["/introspect"] == 1


async def test_questions_are_bounded(issuer: Issuer) -> None:
    """A flood of new tokens does not become a flood at the issuer."""
    issuer.delay = 0.2
    verifier = verifier_of(issuer, max_asking=2)
    tokens = [f"{TOKEN}-{number}" for number in range(50)]
    found = await asyncio.gather(*map(verifier.verify, tokens), return_exceptions=True)
    kinds = [type(each) for each in found]
    assert kinds.count(TokenRefused) == 22
    assert kinds.count(VerifierUnavailable) == 28
    assert issuer.asked["/introspect"] == 22
