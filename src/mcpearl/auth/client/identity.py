"""The identity of this client at an authorization server, and how it authenticates there."""

import base64
from typing import Any
from urllib.parse import quote_plus

from msgspec import Struct

from mcpearl.auth.client.discovery import ServerMetadata
from mcpearl.net.http_client.exchange import Header
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.runtime import clock

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_LIFE = 60  # seconds
BASIC, POST, NONE = "client_secret_basic", "client_secret_post", "none"
PRIVATE_KEY_JWT = "private_key_jwt"


class ClientIdentity(Struct, frozen=True):
    """A client as one authorization server knows it. Its `repr` contains no secret."""

    client_id: str
    client_secret: str | None = None
    method: str | None = None
    """The agreed authentication method; None for one that the server supports."""
    private_key: str | None = None
    """A key in PEM, for `private_key_jwt`."""
    algorithm: str | None = None
    key_id: str | None = None

    def __repr__(self) -> str:
        return f"<Identity {self.client_id!r:.128}>"

    def authenticate(self, server: ServerMetadata) -> tuple[dict[str, str], list[Header]]:
        """Return the form fields and headers that authenticate the client."""
        method = self._method(server)
        if method == NONE:
            return {"client_id": self.client_id}, []
        if method == PRIVATE_KEY_JWT:
            assertion = self._assertion(server)
            return {"client_assertion_type": _ASSERTION, "client_assertion": assertion}, []
        assert self.client_secret is not None
        if method == POST:
            return {"client_id": self.client_id, "client_secret": self.client_secret}, []
        login = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
        basic = base64.b64encode(login.encode()).decode()
        # Many servers look up the client by the form, whatever the header says.
        return {"client_id": self.client_id}, [("Authorization", f"Basic {basic}")]

    def _method(self, server: ServerMetadata) -> str:
        if self.private_key is not None:
            return PRIVATE_KEY_JWT
        if self.client_secret is None or self.method == NONE:
            return NONE
        supported = server.token_endpoint_auth_methods_supported or [BASIC]
        for method in (self.method, BASIC, POST):
            if method in (BASIC, POST) and (method == self.method or method in supported):
                return method
        raise AuthorizationFailed(
            f"{server.issuer} does not accept client secrets, only {', '.join(supported)!r:.200}"
        )

    def _assertion(self, server: ServerMetadata) -> str:
        from joserfc import jwt

        assert self.private_key is not None
        key = _import(self.private_key)
        algorithm = self.algorithm or _algorithm_for(key, server)
        now = int(clock.now())
        header = {"alg": algorithm, "typ": "JWT"}
        if self.key_id is not None:
            header["kid"] = self.key_id
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": server.issuer,
            "iat": now,
            "exp": now + _ASSERTION_LIFE,
            "jti": clock.token(16),
        }
        return jwt.encode(header, claims, key, algorithms=[algorithm])


def _import(pem: str) -> Any:
    """Read a private key of any supported kind."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    kinds: dict[type, Any] = {
        ec.EllipticCurvePrivateKey: ECKey,
        rsa.RSAPrivateKey: RSAKey,
        ed25519.Ed25519PrivateKey: OKPKey,
    }
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (TypeError, ValueError):
        key = None
    for kind, read in kinds.items():
        if isinstance(key, kind):
            return read.import_key(pem)
    raise AuthorizationFailed(
        "the private key must be an unencrypted EC, RSA or Ed25519 key in PEM"
    )


def _algorithm_for(key: Any, server: ServerMetadata) -> str:
    """Return a signature algorithm that fits both the key and the server."""
    curves = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
    fitting = {
        "EC": [curves.get(getattr(key, "curve_name", ""), "ES256")],
        "RSA": ["PS256", "RS256"],
        "OKP": ["EdDSA", "Ed25519"],
    }[key.key_type]
    supported = server.token_endpoint_auth_signing_alg_values_supported or fitting
    for algorithm in fitting:
        if algorithm in supported:
            return algorithm
    raise AuthorizationFailed(
        f"{server.issuer} accepts assertions signed with {', '.join(supported)!r:.200}, "
        f"which a key of type {key.key_type} cannot make"
    )
