"""Ways to get tokens without a user: with credentials of this program, or with an assertion.

`ClientCredentials` is a program acting for itself, `EnterpriseManaged` a user whose company's identity
provider vouches for them, `WorkloadIdentity` a program whose platform vouches for it.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from ssl import SSLContext
from typing import Any

from mcpearl.auth.client.discovery import AuthServer, ServerMetadata, find_server
from mcpearl.auth.client.dpop import ProofKey
from mcpearl.auth.client.identity import ClientIdentity
from mcpearl.auth.client.session import AuthSession
from mcpearl.auth.client.storage import MemoryStorage, Storage
from mcpearl.auth.client.token import Token
from mcpearl.auth.client.token_endpoint import post_form, request_token
from mcpearl.auth.client.web import Reach, Web
from mcpearl.net.tls import Tls, client_context
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.runtime.arguments import refuse_text

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
SAML2 = "urn:ietf:params:oauth:token-type:saml2"

Given = str | Callable[..., Awaitable[str] | str]


class _UnattendedGrant:
    """What the grants without a user share."""

    silent = True
    portable = False

    def __init__(
        self,
        identity: ClientIdentity | None,
        scopes: Iterable[str],
        issuer: str | None,
        storage: Storage | None,
        dpop: bool | None,
        allow_private: bool,
        tls: Tls | SSLContext | None,
        trusted: tuple[str, ...] = (),
    ) -> None:
        refuse_text("scopes", scopes)
        self.scopes = tuple(scopes)
        self.issuer = issuer
        self.dpop = dpop
        self._identity = identity
        self._storage = storage if storage is not None else MemoryStorage()
        self._allow_private = allow_private
        self._tls = None if tls is None else client_context(tls, ["http/1.1"])
        self._trusted = trusted if issuer is None else (issuer, *trusted)
        self._sessions: dict[tuple[str, str | None], AuthSession] = {}  # by URL and proxy

    def authorizer(self, url: str, reach: Reach) -> AuthSession:
        """Return the session with a server. Clients that reach it in the same way share it.

        Args:
            url: The URL of the server.
            reach: How the server is reached.
        """
        session = self._sessions.get((url, reach.proxy))
        if session is None:
            web = Web(
                url,
                trusted=self._trusted,
                allow_private=self._allow_private,
                reach=reach,
                tls=self._tls,
            )
            session = self._sessions[url, reach.proxy] = AuthSession(url, self, self._storage, web)
        return session

    async def obtain(
        self, web: Web, place: AuthServer, scopes: tuple[str, ...], key: ProofKey | None
    ) -> Token:
        """Request a token.

        Args:
            web: Fetches documents for this server.
            place: The authorization server and the resource.
            scopes: The scopes to request.
            key: The key to bind the token to, if any.
        """
        form = await self._form(web, place, scopes)
        if scopes:
            form["scope"] = " ".join(scopes)
        return await request_token(web, place, self._identity, form, scopes, key)

    async def _form(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> dict[str, str]:
        raise NotImplementedError

    async def refresh(
        self, web: Web, place: AuthServer, token: Token, key: ProofKey | None
    ) -> Token:
        """Refresh a token that came with a refresh token.

        Args:
            web: Fetches documents for this server.
            place: The authorization server and the resource.
            token: The old token.
            key: The key that the token is bound to, if any.
        """
        assert token.refresh_token is not None
        form = {"grant_type": "refresh_token", "refresh_token": token.refresh_token}
        return await request_token(web, place, self._identity, form, token.requested, key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class ClientCredentials(_UnattendedGrant):
    """A program that is itself a client of the authorization server.

    Set `issuer`, so that no server can direct the secret elsewhere; without it, the first authorization
    server found is the only one used from then on.

    Args:
        client_id: The client's id at the authorization server.
        client_secret: Its secret, sent as the server accepts it (basic or post).
        private_key: A key in PEM that signs an assertion (`private_key_jwt`), instead of a secret.
        algorithm: The signature algorithm; by default one that fits the key and the server.
        key_id: The id of the key, for the assertion's header.
        scopes: Scopes that are always requested, besides those the server demands.
        issuer: The only authorization server to use.
        storage: Where tokens are stored; by default in memory.
        dpop: Whether to bind tokens to a key: always, never, or if both servers support it (None).
        allow_private: Whether a server may name an authorization server on a private network.
        tls: Trust for authorization servers; by default as for the server.

    >>> ClientCredentials("agent-7", client_secret=os.environ["SECRET"], issuer="https://login.example")
    >>> ClientCredentials("agent-7", private_key=Path("key.pem").read_text())
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
            raise ValueError("pass either a `client_secret` or a `private_key`")
        identity = ClientIdentity(
            client_id,
            client_secret,
            private_key=private_key,
            algorithm=algorithm,
            key_id=key_id,
        )
        super().__init__(identity, scopes, issuer, storage, dpop, allow_private, tls)

    async def _form(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> dict[str, str]:
        return {"grant_type": "client_credentials"}


class WorkloadIdentity(_UnattendedGrant):
    """A program to which its platform issues a JWT that identifies it (RFC 7523).

    If the authorization server refuses the JWT, nothing else is tried.

    Args:
        assertion: The JWT, or a function (or async function) that takes the issuer and returns it.
        client_id: The client's id at the authorization server, if it has one.
        scopes: Scopes that are always requested, besides those the server demands.
        issuer: The only authorization server to use.
        storage: Where tokens are stored; by default in memory.
        dpop: Whether to bind tokens to a key: always, never, or if both servers support it (None).
        allow_private: Whether a server may name an authorization server on a private network.
        tls: Trust for authorization servers; by default as for the server.

    >>> WorkloadIdentity(lambda issuer: Path("/var/run/secrets/token").read_text())
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
        identity = None if client_id is None else ClientIdentity(client_id)
        super().__init__(identity, scopes, issuer, storage, dpop, allow_private, tls)
        self._assertion = assertion

    async def _form(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> dict[str, str]:
        assertion = await _given(self._assertion, place.server.issuer)
        return {"grant_type": _JWT_BEARER, "assertion": assertion}


class EnterpriseManaged(_UnattendedGrant):
    """A user logged in with their company, which decides what this client may access for them.

    The identity provider exchanges the ID token for an assertion to the server's authorization server,
    which exchanges that for an access token.

    Args:
        client_id: The client's id at the server's authorization server.
        id_token: The user's ID token, or a function (or async function) that returns it.
        idp_client_id: The client's id at the identity provider.
        idp_issuer: The identity provider, whose metadata is fetched.
        idp_token_endpoint: The identity provider's token endpoint, if it has no metadata.
        client_secret: The secret that goes with `client_id`.
        private_key: A key in PEM that signs an assertion, instead of `client_secret`.
        idp_client_secret: The secret that goes with `idp_client_id`.
        subject_token_type: The type of `id_token`, such as `SAML2` of this module.
        scopes: Scopes that are always requested, besides those the server demands.
        issuer: The only authorization server to use.
        storage: Where tokens are stored; by default in memory.
        dpop: Whether to bind tokens to a key: always, never, or if both servers support it (None).
        allow_private: Whether a server may name an authorization server on a private network.
        tls: Trust for authorization servers; by default as for the server.

    >>> EnterpriseManaged(
    ...     client_id="agent", client_secret=…, id_token=…,
    ...     idp_issuer="https://login.company.example", idp_client_id="agent-at-company",
    ... )
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
            raise ValueError("pass the identity provider's `idp_issuer` or `idp_token_endpoint`")
        identity = ClientIdentity(client_id, client_secret, private_key=private_key)
        super().__init__(identity, scopes, issuer, storage, dpop, allow_private, tls, (at_idp,))
        self._id_token = id_token
        self._idp_issuer = idp_issuer
        self._idp_token_endpoint = idp_token_endpoint
        self._idp_identity = ClientIdentity(idp_client_id, idp_client_secret)
        self._subject_token_type = subject_token_type

    async def _form(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> dict[str, str]:
        return {"grant_type": _JWT_BEARER, "assertion": await self._vouched(web, place, scopes)}

    async def _vouched(self, web: Web, place: AuthServer, scopes: tuple[str, ...]) -> str:
        """Get the identity provider's assertion about the user, for the authorization server."""
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
            raise AuthorizationFailed(f"the answer of {provider.issuer} is not an ID-JAG")
        return vouched

    async def _provider(self, web: Web) -> ServerMetadata:
        if self._idp_token_endpoint is not None:
            name = self._idp_issuer or self._idp_token_endpoint
            return ServerMetadata(issuer=name, token_endpoint=self._idp_token_endpoint)
        assert self._idp_issuer is not None
        provider = await find_server(web, self._idp_issuer)
        if provider is None:
            raise AuthorizationFailed(f"the metadata of {self._idp_issuer} was not found")
        return provider


async def _given(given: Given, *arguments: Any) -> str:
    """Return the value, or the result of the function."""
    value = given(*arguments) if callable(given) else given
    return await value if inspect.isawaitable(value) else value
