"""Finds the authorization server of a server: RFC 9728, then RFC 8414 or OpenID Connect.

A document's claims are checked against where it was found: the resource must be the server that was
asked, and the issuer must be the one whose URL led there. Servers of 2025-03-26 publish no resource
metadata; their own origin is the authorization server.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from mcpearl.auth.client.challenge import Demand
from mcpearl.auth.client.web import Web
from mcpearl.auth.issuer import well_known
from mcpearl.net.http_client.urls import origin_of
from mcpearl.protocol.errors import AuthorizationFailed, brief

logger = logging.getLogger("mcpearl.auth")

_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
M = TypeVar("M", bound=Struct)
_MAX_SERVERS = 10  # authorization servers to try


class ResourceMetadata(Struct):
    """What a server publishes about its protection."""

    resource: str
    authorization_servers: list[str] = []
    scopes_supported: list[str] | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool = False


class ServerMetadata(Struct):
    """What an authorization server publishes about itself."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False
    dpop_signing_alg_values_supported: list[str] | None = None


class AuthServer(NamedTuple):
    """The authorization server of a resource."""

    resource: str
    """The resource that tokens are for, as the server names it."""
    scopes: tuple[str, ...]
    """The scopes to request if a challenge does not name any."""
    server: ServerMetadata
    dpop: bool
    """Whether both servers support tokens bound to a key."""


async def find_place(
    web: Web, url: str, demand: Demand, issuer: str | None = None, known: Sequence[str] = ()
) -> AuthServer:
    """Find the authorization server of the server at `url`, which demanded `demand`.

    If `issuer` is set, no other is accepted; issuers in `known` are preferred.
    """
    resource = await _find_resource(web, url, demand)
    if resource is None:
        return await _find_as_of_2025_03_26(web, url, issuer)
    offered = resource.authorization_servers
    if not offered:
        raise AuthorizationFailed(f"the metadata of {url} names no authorization server")
    if issuer is not None and issuer not in offered:
        raise AuthorizationFailed(
            f"{url} is authorized by {brief(', '.join(offered))}, but the client's credentials "
            f"belong to {issuer}; register with the new authorization server"
        )
    candidates = (
        [issuer] if issuer else sorted(offered[:_MAX_SERVERS], key=lambda o: o not in known)
    )
    server = await _first_server(web, candidates)
    scopes = tuple(dict.fromkeys(resource.scopes_supported or ()))
    return AuthServer(resource.resource, scopes, server, _dpop(resource, server, demand))


def _dpop(resource: ResourceMetadata, server: ServerMetadata, demand: Demand) -> bool:
    accepted = (
        "dpop" in demand.schemes
        or resource.dpop_bound_access_tokens_required
        or bool(resource.dpop_signing_alg_values_supported)
    )
    return accepted and bool(server.dpop_signing_alg_values_supported)


# The resource


async def _find_resource(web: Web, url: str, demand: Demand) -> ResourceMetadata | None:
    """Fetch the metadata from where the challenge says, or else from the well-known URLs."""
    for address in _resource_addresses(url, demand):
        document = await web.document(address)
        if document is None:
            continue
        metadata = _convert(document, ResourceMetadata, address)
        if not _covers(metadata.resource, url):
            raise AuthorizationFailed(
                f"the metadata at {address} is for {metadata.resource!r:.256}, not for {url}"
            )
        return metadata
    return None


def _resource_addresses(url: str, demand: Demand) -> list[str]:
    parts = urlsplit(url)
    origin, path = origin_of(parts), parts.path.rstrip("/")
    usual = [f"{origin}{_RESOURCE}{path}", f"{origin}{_RESOURCE}"]
    named = [] if demand.resource_metadata is None else [demand.resource_metadata]
    return list(dict.fromkeys(named + usual))


def _covers(resource: str, url: str) -> bool:
    """Return whether a resource is the server at `url`, its origin, or a path above it."""
    try:
        outer, inner = urlsplit(resource), urlsplit(url)
        same = origin_of(outer) == origin_of(inner)
    except ValueError:
        return False
    if not same or outer.fragment or outer.username is not None:
        return False
    above = outer.path.rstrip("/")
    return (inner.path.rstrip("/") + "/").startswith(above + "/")


# The authorization server


async def _first_server(web: Web, issuers: Sequence[str]) -> ServerMetadata:
    for issuer in issuers:
        server = await find_server(web, issuer)
        if server is not None:
            return server
    raise AuthorizationFailed(f"the metadata of {brief(', '.join(issuers))} was not found")


async def find_server(web: Web, issuer: str) -> ServerMetadata | None:
    """Fetch the metadata of an issuer, trying URLs in the specification's order."""
    try:
        addresses = well_known(issuer)
    except ValueError:
        raise AuthorizationFailed(f"{issuer!r:.256} is not a valid issuer URL") from None
    for address in addresses:
        document = await web.document(address)
        if document is not None:
            metadata = _convert(document, ServerMetadata, address)
            _check_issuer(metadata, (issuer,), address)
            return metadata
    return None


async def _find_as_of_2025_03_26(web: Web, url: str, issuer: str | None) -> AuthServer:
    """Use the server's own origin as the authorization server, even without metadata."""
    origin = origin_of(urlsplit(url))
    if issuer is not None and issuer.rstrip("/") != origin:
        raise AuthorizationFailed(
            f"{url} names no authorization server, and the client's credentials belong to {issuer}"
        )
    address = f"{origin}{_OAUTH}"
    document = await web.document(address)
    if document is None:
        server = ServerMetadata(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
            code_challenge_methods_supported=["S256"],  # required by that version
        )
        logger.info("%s publishes no metadata; using the endpoints of 2025-03-26", origin)
    else:
        server = _convert(document, ServerMetadata, address)
        _check_issuer(server, (origin, origin + "/"), address)
    return AuthServer(url, (), server, dpop=False)


def _check_issuer(metadata: ServerMetadata, expected: tuple[str, ...], address: str) -> None:
    if metadata.issuer not in expected:
        raise AuthorizationFailed(
            f"the metadata at {address} names the issuer {metadata.issuer!r:.256} "
            f"instead of {expected[0]}, so it is not used"
        )


def _convert(document: dict[str, Any], kind: type[M], address: str) -> M:
    try:
        return msgspec.convert({k: v for k, v in document.items() if v is not None}, kind)
    except msgspec.ValidationError as error:
        raise AuthorizationFailed(f"the metadata at {address} is not valid: {error}") from None
