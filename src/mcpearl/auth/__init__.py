"""Who is asking, and how to log in.

Names are loaded when first used: a server without authorization loads none of this, and neither side
loads the other's.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.auth.any_of import AnyOf
    from mcpearl.auth.bearer import BearerToken
    from mcpearl.auth.client_certificates import ClientCertificates
    from mcpearl.auth.fetch import FetchPolicy
    from mcpearl.auth.grants import ClientCredentials, EnterpriseManaged, WorkloadIdentity
    from mcpearl.auth.introspection import IntrospectionVerifier
    from mcpearl.auth.jwt import JWTVerifier
    from mcpearl.auth.oauth import OAuth
    from mcpearl.auth.principal import Principal
    from mcpearl.auth.resource_server import ResourceServer
    from mcpearl.auth.static import StaticTokens
    from mcpearl.auth.storage import FileStorage, KeyringStorage, MemoryStorage, Storage
    from mcpearl.auth.verifier import TokenRefused, Verifier, VerifierUnavailable

_HOMES = {
    "AnyOf": "any_of",
    "BearerToken": "bearer",
    "ClientCertificates": "client_certificates",
    "ClientCredentials": "grants",
    "EnterpriseManaged": "grants",
    "FetchPolicy": "fetch",
    "FileStorage": "storage",
    "IntrospectionVerifier": "introspection",
    "JWTVerifier": "jwt",
    "KeyringStorage": "storage",
    "MemoryStorage": "storage",
    "OAuth": "oauth",
    "Principal": "principal",
    "ResourceServer": "resource_server",
    "StaticTokens": "static",
    "Storage": "storage",
    "TokenRefused": "verifier",
    "Verifier": "verifier",
    "VerifierUnavailable": "verifier",
    "WorkloadIdentity": "grants",
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
