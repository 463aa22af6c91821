"""Authorization: verifying the caller of a server, and logging in as a client.

`auth.server` protects a server, `auth.client` obtains tokens; neither imports the other. Names are
imported on first use: a server without authorization loads none of this.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.auth.client.bearer import BearerToken
    from mcpearl.auth.client.grants import ClientCredentials, EnterpriseManaged, WorkloadIdentity
    from mcpearl.auth.client.oauth import OAuth
    from mcpearl.auth.client.storage import FileStorage, KeyringStorage, MemoryStorage, Storage
    from mcpearl.auth.fetch import FetchPolicy
    from mcpearl.auth.principal import Principal
    from mcpearl.auth.server.any_of import AnyOf
    from mcpearl.auth.server.client_certificates import ClientCertificates
    from mcpearl.auth.server.introspection import IntrospectionVerifier
    from mcpearl.auth.server.jwt import JWTVerifier
    from mcpearl.auth.server.resource_server import ResourceServer
    from mcpearl.auth.server.static import StaticTokens
    from mcpearl.auth.server.verifier import TokenRefused, Verifier, VerifierUnavailable

_HOMES = {
    "AnyOf": "server.any_of",
    "BearerToken": "client.bearer",
    "ClientCertificates": "server.client_certificates",
    "ClientCredentials": "client.grants",
    "EnterpriseManaged": "client.grants",
    "FetchPolicy": "fetch",
    "FileStorage": "client.storage",
    "IntrospectionVerifier": "server.introspection",
    "JWTVerifier": "server.jwt",
    "KeyringStorage": "client.storage",
    "MemoryStorage": "client.storage",
    "OAuth": "client.oauth",
    "Principal": "principal",
    "ResourceServer": "server.resource_server",
    "StaticTokens": "server.static",
    "Storage": "client.storage",
    "TokenRefused": "server.verifier",
    "Verifier": "server.verifier",
    "VerifierUnavailable": "server.verifier",
    "WorkloadIdentity": "client.grants",
}

__all__ = [
    "AnyOf",
    "BearerToken",
    "ClientCertificates",
    "ClientCredentials",
    "EnterpriseManaged",
    "FetchPolicy",
    "FileStorage",
    "IntrospectionVerifier",
    "JWTVerifier",
    "KeyringStorage",
    "MemoryStorage",
    "OAuth",
    "Principal",
    "ResourceServer",
    "StaticTokens",
    "Storage",
    "TokenRefused",
    "Verifier",
    "VerifierUnavailable",
    "WorkloadIdentity",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
