"""Registers this client at an authorization server: Dynamic Client Registration (RFC 7591).

It is the last resort, after given credentials and a Client ID Metadata Document. A registration is
stored under its issuer and used for no other.
"""

from typing import Any

import msgspec
from msgspec import Struct

from mcpearl.auth.client.discovery import ServerMetadata
from mcpearl.auth.client.identity import BASIC, NONE, POST, ClientIdentity
from mcpearl.auth.client.token_endpoint import plain
from mcpearl.auth.client.web import Web
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.runtime import clock


class Registration(Struct, frozen=True):
    """A registered client."""

    client_id: str
    redirect_uri: str
    client_secret: str | None = None
    method: str | None = None
    secret_expires_at: float = 0
    scopes: tuple[str, ...] = ()

    @property
    def over(self) -> bool:
        """Whether the secret has expired."""
        return 0 < self.secret_expires_at < clock.now()

    def identity(self) -> ClientIdentity:
        """Return the identity to authenticate with at the token endpoint."""
        return ClientIdentity(self.client_id, self.client_secret, self.method)

    def __repr__(self) -> str:
        return f"<Registration {self.client_id!r:.128}>"


class _RegistrationAnswer(Struct):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None
    client_secret_expires_at: float | None = None


async def register(
    web: Web,
    server: ServerMetadata,
    *,
    client_name: str,
    redirect_uri: str,
    scopes: tuple[str, ...],
    dpop: bool,
) -> Registration:
    """Register this client at an authorization server."""
    if server.registration_endpoint is None:
        raise AuthorizationFailed(
            f"{server.issuer} does not support client registration; register this program there and "
            "pass `OAuth(client_id=…)`, or publish its metadata and pass `client_metadata_url=…`"
        )
    method = _method(server)
    metadata: dict[str, Any] = {
        "client_name": client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    }
    if scopes:
        metadata["scope"] = " ".join(scopes)
    if dpop:
        metadata["dpop_bound_access_tokens"] = True
    fetched = await web.fetch(server.registration_endpoint, method="POST", json=metadata)
    if fetched.status not in (200, 201):
        raise AuthorizationFailed(_refusal(server, fetched.status, fetched.body))
    try:
        answer = msgspec.convert(fetched.body, _RegistrationAnswer)
    except msgspec.ValidationError as error:
        raise AuthorizationFailed(
            f"the answer of {server.issuer} is not a registration: {error}"
        ) from None
    return Registration(
        answer.client_id,
        redirect_uri,
        answer.client_secret,
        answer.token_endpoint_auth_method or method,
        answer.client_secret_expires_at or 0,
        scopes,
    )


def _method(server: ServerMetadata) -> str:
    """Return the authentication method to use; a native program cannot keep a secret."""
    supported = server.token_endpoint_auth_methods_supported or [BASIC]
    for method in (NONE, BASIC, POST):
        if method in supported:
            return method
    raise AuthorizationFailed(
        f"{server.issuer} accepts only the authentication methods "
        f"{', '.join(supported)!r:.200}, which need credentials; pass `OAuth(client_id=…)`"
    )


def _refusal(server: ServerMetadata, status: int, body: Any) -> str:
    said = body if isinstance(body, dict) else {}
    why = " ".join(plain(said[name]) for name in ("error", "error_description") if name in said)
    return f"{server.issuer} refused to register this client: {why or f'HTTP status {status}'}"
