"""Who is asking, and how to log in.

Names are loaded when first used: a server without authorization loads none of this.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.auth.client_certificates import ClientCertificates
    from mcpearl.auth.fetch import FetchPolicy
    from mcpearl.auth.introspection import IntrospectionVerifier
    from mcpearl.auth.jwt import JWTVerifier
    from mcpearl.auth.principal import Principal
    from mcpearl.auth.resource_server import ResourceServer
    from mcpearl.auth.static import StaticTokens
    from mcpearl.auth.verifier import TokenRefused, Verifier, VerifierUnavailable

_HOMES = {
    "ClientCertificates": "client_certificates",
    "FetchPolicy": "fetch",
    "IntrospectionVerifier": "introspection",
    "JWTVerifier": "jwt",
    "Principal": "principal",
    "ResourceServer": "resource_server",
    "StaticTokens": "static",
    "TokenRefused": "verifier",
    "Verifier": "verifier",
    "VerifierUnavailable": "verifier",
}

__all__ = [
    "ClientCertificates",
    "FetchPolicy",
    "IntrospectionVerifier",
    "JWTVerifier",
    "Principal",
    "ResourceServer",
    "StaticTokens",
    "TokenRefused",
    "Verifier",
    "VerifierUnavailable",
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
