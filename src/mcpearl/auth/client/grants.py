"""Getting tokens without a person: by a secret or a key of this program, or by somebody's word for it.

`ClientCredentials` is a program on its own behalf, `EnterpriseManaged` a person whose company's
identity provider vouches for them, `WorkloadIdentity` a program whose platform vouches for it.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from ssl import SSLContext
from typing import Any

from mcpearl.auth.client.discovery import AuthServer, ServerMetadata, find_server
from mcpearl.auth.client.dpop import ProofKey
from mcpearl.auth.client.identity import Identity
from mcpearl.auth.client.session import Session
from mcpearl.auth.client.storage import MemoryStorage, Storage
from mcpearl.auth.client.token import Token
from mcpearl.auth.client.token_endpoint import post_form, request_token
from mcpearl.auth.client.web import Reach, Web
from mcpearl.net.tls import Tls, client_context
from mcpearl.protocol.errors import AuthorizationFailed

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
SAML2 = "urn:ietf:params:oauth:token-type:saml2"

Given = str | Callable[..., Awaitable[str] | str]


class _Unattended:
    """What the grants without a person share."""

    silent = True
    portable = False

    def __init__(
        self,
        identity: Identity | None,
        scopes: Iterable[str],
        issuer: str | None,
        storage: Storage | None,
        dpop: bool | None,
        allow_private: bool,
        tls: Tls | SSLContext | None,
        trusted: tuple[str, ...] = (),
    ) -> None:
        self.scopes = tuple(scopes)
        self.issuer = issuer
        self.dpop = dpop
        self._identity = identity
        self._storage = storage if storage is not None else MemoryStorage()
        self._allow_private = allow_private
        self._tls = None if tls is None else client_context(tls, ["http/1.1"])
        self._trusted = trusted if issuer is None else (issuer, *trusted)
        self._sessions: dict[tuple[str, str | None], Session] = {}  # by address and proxy

    def authorizer(self, url: str, reach: Reach) -> Session:
        """Give the session with one server, the same to all who ask and reach it the same way."""
        session = self._sessions.get((url, reach.proxy))
        if session is None:
            web = Web(
                url,
                trusted=self._trusted,
                allow_private=self._allow_private,
                reach=reach,
                tls=self._tls,
            )
            session = self._sessions[url, reach.proxy] = Session(url, self, self._storage, web)
        return session

    async def obtain(
        self, web: Web, place: AuthServer, scopes: tuple[str, ...], key: ProofKey | None
    ) -> Token:
        """Get a token."""
        form = await self._form(web, place, scopes)
        if scopes:
            form["scope"] = " ".join(scopes)
        return await request_token(web, place, self._identity, form, scopes, key)

    async def _form(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> dict[str, str]:
        raise NotImplementedError

    async def refresh(
        self, web: Web, place: AuthServer, token: Token, key: ProofKey | None
    ) -> Token:
        """Renew a token, where one came with the means to."""
        assert token.refresh_token is not None
        form = {"grant_type": "refresh_token", "refresh_token": token.refresh_token}
        return await request_token(web, place, self._identity, form, token.requested, key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class ClientCredentials(_Unattended):
    """A program that is a client of the authorization server in its own right.

    >>> ClientCredentials("agent-7", client_secret=os.environ["SECRET"], issuer="https://login.example")
    >>> ClientCredentials("agent-7", private_key=Path("key.pem").read_text())

    A secret goes as the authorization server takes it (basic or post), a key in PEM signs an assertion
    (`private_key_jwt`). Name the `issuer`, so that no server can have the secret sent elsewhere;
    without it, the first authorization server met is the only one from then on.
    """

    def __init__(
        self,
        client_id: str,
        *,
        client_secret: str | None = None,
        private_key: str | None = None,
        algorithm: str | None = None,
        key_id: str | None = None,
        scopes: Iterable[str] = (),
        issuer: str | None = None,
        storage: Storage | None = None,
        dpop: bool | None = None,
        allow_private: bool = False,
        tls: Tls | SSLContext | None = None,
    ) -> None:
        if (client_secret is None) == (private_key is None):
            raise ValueError("give either a `client_secret` or a `private_key`")
        identity = Identity(
            client_id,
            client_secret,
            private_key=private_key,
            algorithm=algorithm,
            key_id=key_id,
        )
        super().__init__(identity, scopes, issuer, storage, dpop, allow_private, tls)

    async def _form(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> dict[str, str]:
        return {"grant_type": "client_credentials"}


class WorkloadIdentity(_Unattended):
    """A program whose platform gives it a JWT that says what it is (RFC 7523).

    >>> WorkloadIdentity(lambda issuer: Path("/var/run/secrets/token").read_text())

    `assertion` is the JWT, or a function (also an async one) that is given the issuer it will be shown
    to. A refusal is final: nothing else is tried.
    """

    def __init__(
        self,
        assertion: Given,
        *,
        client_id: str | None = None,
        scopes: Iterable[str] = (),
        issuer: str | None = None,
        storage: Storage | None = None,
        dpop: bool | None = None,
        allow_private: bool = False,
        tls: Tls | SSLContext | None = None,
    ) -> None:
        identity = None if client_id is None else Identity(client_id)
        super().__init__(identity, scopes, issuer, storage, dpop, allow_private, tls)
        self._assertion = assertion

    async def _form(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> dict[str, str]:
        assertion = await _given(self._assertion, place.server.issuer)
        return {"grant_type": _JWT_BEARER, "assertion": assertion}


class EnterpriseManaged(_Unattended):
    """A person who is logged in with their company, which decides what this client may use for them.

    >>> EnterpriseManaged(
    ...     client_id="agent", client_secret=…, id_token=…,
    ...     idp_issuer="https://login.company.example", idp_client_id="agent-at-company",
    ... )

    The identity assertion (`id_token`, or a function that gives it) is exchanged at the identity
    provider for one to the server's authorization server, and that for a token.
    """

    def __init__(
        self,
        *,
        client_id: str,
        id_token: Given,
        idp_client_id: str,
        idp_issuer: str | None = None,
        idp_token_endpoint: str | None = None,
        client_secret: str | None = None,
        private_key: str | None = None,
        idp_client_secret: str | None = None,
        subject_token_type: str = ID_TOKEN,
        scopes: Iterable[str] = (),
        issuer: str | None = None,
        storage: Storage | None = None,
        dpop: bool | None = None,
        allow_private: bool = False,
        tls: Tls | SSLContext | None = None,
    ) -> None:
        at_idp = idp_token_endpoint or idp_issuer
        if at_idp is None:
            raise ValueError("give the identity provider's `idp_issuer` or `idp_token_endpoint`")
        identity = Identity(client_id, client_secret, private_key=private_key)
        super().__init__(identity, scopes, issuer, storage, dpop, allow_private, tls, (at_idp,))
        self._id_token = id_token
        self._idp_issuer = idp_issuer
        self._idp_token_endpoint = idp_token_endpoint
        self._idp_identity = Identity(idp_client_id, idp_client_secret)
        self._subject_token_type = subject_token_type

    async def _form(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> dict[str, str]:
        return {"grant_type": _JWT_BEARER, "assertion": await self._vouched(web, place, scopes)}

    async def _vouched(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> str:
        """Have the identity provider vouch for the person towards the authorization server."""
        form = {
            "grant_type": _TOKEN_EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": place.server.issuer,
            "resource": place.resource,
            "subject_token": await _given(self._id_token),
            "subject_token_type": self._subject_token_type,
        }
        if scopes:
            form["scope"] = " ".join(scopes)
        provider = await self._provider(web)
        answer = await post_form(web, provider, self._idp_identity, form)
        vouched = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(vouched, str) or answer.get("issued_token_type") != _ID_JAG:
            raise AuthorizationFailed(f"{provider.issuer} answered with what is no ID-JAG")
        return vouched

    async def _provider(self, web: Web) -> ServerMetadata:
        if self._idp_token_endpoint is not None:
            name = self._idp_issuer or self._idp_token_endpoint
            return ServerMetadata(issuer=name, token_endpoint=self._idp_token_endpoint)
        assert self._idp_issuer is not None
        provider = await find_server(web, self._idp_issuer)
        if provider is None:
            raise AuthorizationFailed(f"no metadata of {self._idp_issuer} can be found")
        return provider


async def _given(given: Given, *arguments: Any) -> str:
    """Take what was given, or ask the function that was."""
    value = given(*arguments) if callable(given) else given
    return await value if inspect.isawaitable(value) else value
