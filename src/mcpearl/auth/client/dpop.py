"""Makes DPoP proofs (RFC 9449), which show that this client holds the key of its token.

A key pair signs one proof for each request. A server may demand that proofs contain its nonce; the latest
nonce of each origin is kept.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from mcpearl.net.http_client.exchange import Header
from mcpearl.net.http_client.urls import origin_of
from mcpearl.runtime import clock

ALGORITHM = "ES256"
_NONCE = "dpop-nonce"
_MAX_NONCE = 1024  # characters
_MAX_ORIGINS = 32


class ProofKey:
    """The key that tokens are bound to."""

    def __init__(self, jwk: Mapping[str, Any] | None = None) -> None:
        from joserfc import jwt
        from joserfc.jwk import ECKey

        self._sign = jwt.encode
        self._key = ECKey.generate_key("P-256") if jwk is None else ECKey.import_key(dict(jwk))
        self._head = {"typ": "dpop+jwt", "alg": ALGORITHM, "jwk": self._key.as_dict(private=False)}
        self._nonces: dict[str, str] = {}

    def private(self) -> dict[str, Any]:
        """Return the private key, to be stored with the token that is bound to it."""
        return dict(self._key.as_dict(private=True))

    def proof(self, method: str, url: str, token: str | None = None) -> Header:
        """Return the header that proves possession of the key for one request."""
        parts = urlsplit(url)
        claims: dict[str, Any] = {
            "jti": clock.token(16),
            "htm": method,
            "htu": origin_of(parts) + parts.path,
            "iat": int(clock.now()),
        }
        if token is not None:
            digest = hashlib.sha256(token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        nonce = self._nonces.get(origin_of(parts))
        if nonce is not None:
            claims["nonce"] = nonce
        return "DPoP", self._sign(self._head, claims, self._key, algorithms=[ALGORITHM])

    def learn(self, url: str, headers: Mapping[str, str]) -> bool:
        """Keep the nonce of a response. Return whether it is a new one."""
        nonce = headers.get(_NONCE, "")
        origin = origin_of(urlsplit(url))
        if not nonce or len(nonce) > _MAX_NONCE or self._nonces.get(origin) == nonce:
            return False
        if len(self._nonces) >= _MAX_ORIGINS:
            self._nonces.clear()
        self._nonces[origin] = nonce
        return True
