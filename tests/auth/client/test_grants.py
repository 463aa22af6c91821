"""Tokens without a person, and tokens from elsewhere."""

import asyncio
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcpearl import AuthorizationFailed, Client
from mcpearl.auth import BearerToken, ClientCredentials, EnterpriseManaged, WorkloadIdentity
from mcpearl.auth.client.web import Reach
from mcpearl.testing.clock import MovableClock
from tests.auth.client.world import Authority, Guarded, authority, basic

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def gives(issuer: Authority, grant: str) -> None:
    """Let an authority answer one grant."""
    issuer.refreshes = False
    issuer.grants = lambda form: (
        issuer.issue(form.get("scope", "")) if form["grant_type"] == grant else None
    )


async def use(server: Guarded, auth: Any) -> None:
    async with Client(server.url, auth=auth) as client:
        assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"


def methods(issuer: Authority, *names: str) -> None:
    issuer.metadata["token_endpoint_auth_methods_supported"] = list(names)


async def test_a_secret_in_the_header(issuer: Authority, server: Guarded):
    gives(issuer, "client_credentials")
    methods(issuer, "client_secret_basic", "client_secret_post")
    server.challenge = ', scope="read"'
    await use(server, ClientCredentials("agent", client_secret="p@ss:wörd", scopes=["own"]))
    (form,) = issuer.forms
    assert basic(issuer.headers[0]) == ("agent", "p@ss:wörd")
    assert form == {
        "grant_type": "client_credentials",
        "client_id": "agent",
        "scope": "read own",
        "resource": server.url,
    }


async def test_a_secret_in_the_form(issuer: Authority, server: Guarded):
    gives(issuer, "client_credentials")
    methods(issuer, "client_secret_post")
    await use(server, ClientCredentials("agent", client_secret="hush"))
    assert (issuer.forms[0]["client_id"], issuer.forms[0]["client_secret"]) == ("agent", "hush")
    assert "authorization" not in issuer.headers[0]


KEYS: dict[str, tuple[Any, Any]] = {
    "ES256": (ec.generate_private_key(ec.SECP256R1()), ECKey),
    "ES384": (ec.generate_private_key(ec.SECP384R1()), ECKey),
    "PS256": (rsa.generate_private_key(65537, 2048), RSAKey),
    "EdDSA": (ed25519.Ed25519PrivateKey.generate(), OKPKey),
}


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_key(issuer: Authority, server: Guarded, algorithm: str):
    gives(issuer, "client_credentials")
    methods(issuer, "private_key_jwt")
    key, kind = KEYS[algorithm]
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    await use(server, ClientCredentials("agent", private_key=pem, key_id="k1"))
    (form,) = issuer.forms
    assert "client_id" not in form
    read = jwt.decode(form["client_assertion"], kind.import_key(pem), algorithms=[algorithm])
    assert read.header["alg"] == algorithm
    assert read.header["kid"] == "k1"
    claims = read.claims
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("agent", "agent", issuer.issuer)
    assert claims["exp"] - claims["iat"] == 60


async def test_what_is_over_is_asked_for_again_before_it_is_refused(
    issuer: Authority, server: Guarded, clock: MovableClock
):
    gives(issuer, "client_credentials")
    methods(issuer, "client_secret_basic")
    issuer.lifetime = 100
    async with Client(server.url, auth=ClientCredentials("a", client_secret="b")) as client:
        for seconds in (0, 50, 100, 150):
            clock.move(50 if seconds else 0)
            await asyncio.gather(*(client.call_tool("add", {"a": 1, "b": 1}) for _ in range(3)))
            assert len(issuer.forms) == seconds // 100 + 1
    assert sum(not shown for _, shown, _ in server.seen) == 1


async def test_a_secret_stays_with_the_first_authorization_server(
    issuer: Authority, server: Guarded
):
    gives(issuer, "client_credentials")
    methods(issuer, "client_secret_basic")
    auth = ClientCredentials("agent", client_secret="hush")
    await use(server, auth)
    async with authority() as new:
        server.authority = new
        with pytest.raises(AuthorizationFailed, match="credentials belong to"):
            await use(server, auth)
        assert not new.forms


async def test_a_workload(issuer: Authority, server: Guarded):
    gives(issuer, JWT_BEARER)
    asked: list[str] = []

    async def assertion(audience: str) -> str:
        asked.append(audience)
        return "ey.work.load"

    await use(server, WorkloadIdentity(assertion, client_id="workload"))
    assert asked == [issuer.issuer]
    (form,) = issuer.forms
    assert form == {
        "grant_type": JWT_BEARER,
        "assertion": "ey.work.load",
        "client_id": "workload",
        "resource": server.url,
    }


async def test_a_workload_that_is_refused_tries_nothing_else(issuer: Authority, server: Guarded):
    with pytest.raises(AuthorizationFailed, match="unauthorized_client"):
        await use(server, WorkloadIdentity("ey.work.load"))
    assert len(issuer.forms) == 1


async def test_an_enterprise(issuer: Authority, server: Guarded):
    gives(issuer, JWT_BEARER)
    methods(issuer, "client_secret_basic")
    server.challenge = ', scope="read"'
    async with authority() as company:
        company.grants = lambda form: {
            "access_token": "ey.id.jag",
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "token_type": "N_A",
        }
        auth = EnterpriseManaged(
            client_id="agent",
            client_secret="hush",
            id_token=lambda: "ey.id.token",
            idp_issuer=company.issuer,
            idp_client_id="agent-at-company",
        )
        await use(server, auth)
        (exchange,) = company.forms
    assert exchange == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "audience": issuer.issuer,
        "resource": server.url,
        "subject_token": "ey.id.token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "scope": "read",
        "client_id": "agent-at-company",
    }
    (form,) = issuer.forms
    assert (form["grant_type"], form["assertion"]) == (JWT_BEARER, "ey.id.jag")
    assert basic(issuer.headers[0]) == ("agent", "hush")


async def test_an_enterprise_that_gives_something_else(issuer: Authority, server: Guarded):
    async with authority() as company:
        company.grants = lambda form: {"access_token": "x", "token_type": "Bearer"}
        auth = EnterpriseManaged(
            client_id="agent",
            id_token="ey.id.token",
            idp_token_endpoint=f"{company.issuer}/token",
            idp_client_id="agent-at-company",
        )
        with pytest.raises(AuthorizationFailed, match="not an ID-JAG"):
            await use(server, auth)
    assert not issuer.forms


def test_settings_that_make_no_sense():
    with pytest.raises(ValueError, match="either a `client_secret` or a `private_key`"):
        ClientCredentials("agent")
    with pytest.raises(ValueError, match="`idp_issuer` or `idp_token_endpoint`"):
        EnterpriseManaged(client_id="a", id_token="b", idp_client_id="c")
    with pytest.raises(ValueError, match="empty"):
        BearerToken("")


async def test_a_key_that_is_none(issuer: Authority, server: Guarded):
    auth = ClientCredentials("agent", private_key="not a key")
    with pytest.raises(AuthorizationFailed, match="EC, RSA or Ed25519 key in PEM"):
        await use(server, auth)


async def test_a_function_that_fails(issuer: Authority, server: Guarded):
    def broken(audience: str) -> str:
        raise OSError("the file is gone")

    with pytest.raises(AuthorizationFailed, match="OSError: the file is gone"):
        await use(server, WorkloadIdentity(broken))


# Tokens from elsewhere


async def test_a_fixed_token(issuer: Authority, server: Guarded):
    token = issuer.issue("")["access_token"]
    await use(server, BearerToken(token))
    assert {shown for _, shown, _ in server.seen} == {f"Bearer {token}"}
    with pytest.raises(AuthorizationFailed, match="refused the token"):
        await use(server, BearerToken("wrong"))
    assert token not in repr(BearerToken(token))


async def test_a_function_is_asked_again_when_its_token_is_refused(
    issuer: Authority, server: Guarded
):
    given = ["old", issuer.issue("")["access_token"]]

    def token() -> str:
        return given.pop(0) if len(given) > 1 else given[0]

    await use(server, token)
    assert [shown for _, shown, _ in server.seen[:2]] == ["Bearer old", f"Bearer {given[0]}"]


async def test_an_async_function(issuer: Authority, server: Guarded):
    async def token() -> str:
        await asyncio.sleep(0)
        given.append(str(issuer.issue("")["access_token"]))
        return given[-1]

    given: list[str] = []
    await use(server, token)
    shown = {shown for _, shown, _ in server.seen}
    assert given
    assert shown == {f"Bearer {each}" for each in given}


async def test_nothing_of_it_is_in_what_is_shown_of_the_objects(issuer: Authority, server: Guarded):
    gives(issuer, "client_credentials")
    methods(issuer, "client_secret_basic")
    auth = ClientCredentials("agent", client_secret="hush-hush")
    await use(server, auth)
    session = auth.authorizer(server.url, Reach())
    shown = repr(auth) + repr(auth._identity) + repr(session) + repr(session._token)
    assert "<Token for" in shown
    assert "hush-hush" not in shown
    assert not any(token in shown for token in issuer.tokens)
