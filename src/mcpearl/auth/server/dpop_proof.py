"""Proofs of possession (RFC 9449): that who brings a token also has the key it was issued to.

A proof is for one request: its method, its address, its token, about now, once. What has been seen
is remembered (`proof_memory`) until it would be too old anyway, within bounds.
"""

import hmac
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from urllib.parse import urlsplit

from mcpearl.auth.server import jose
from mcpearl.auth.server.proof_memory import ProofMemory
from mcpearl.auth.server.verifier import TokenRefused, time_of
from mcpearl.net.http_client.urls import origin_of

_MAX_ID = 256  # characters
_NONCE_STEP = 60  # seconds a nonce is given out; it is good for as long again


class NonceNeeded(TokenRefused):
    """The proof is good, but does not carry a nonce of this server."""


class ProofChecker:
    """Checks the proofs that come to one resource."""

    def __init__(self, *, max_age: float, memory: ProofMemory, nonces: bytes | None) -> None:
        self._max_age = max_age
        self._secret = nonces  # what nonces are made with; None when there are none
        self._memory = memory

    def check(
        self, proof: bytes | None, method: str, url: str, token: str, thumbprint: str
    ) -> None:
        """Check a proof of having the key with this thumbprint, or raise `TokenRefused`."""
        if proof is None:
            raise TokenRefused("the DPoP header is missing")
        try:
            signed = jose.read(proof.decode("ascii"))
        except (UnicodeDecodeError, TokenRefused):
            raise TokenRefused("the DPoP proof is not one signed JWT") from None
        if signed.header.get("typ") != "dpop+jwt":
            raise TokenRefused("the DPoP proof has another type")
        self._check_claims(signed, method, url, token)
        if self._signer(signed) != thumbprint:
            raise TokenRefused("the DPoP proof is made with another key than the token is bound to")
        self._check_nonce(signed)
        until = signed.claims["iat"] + self._max_age
        self._memory.note(thumbprint, signed.claims["jti"], until)

    def _check_claims(self, signed: jose.Signed, method: str, url: str, token: str) -> None:
        claims = signed.claims
        if claims.get("htm") != method:
            raise TokenRefused("the DPoP proof is for another method")
        if not same_place(claims.get("htu"), url):
            raise TokenRefused("the DPoP proof is for another address")
        hashed = urlsafe_b64encode(sha256(token.encode()).digest()).rstrip(b"=")
        given = claims.get("ath")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), hashed):
            raise TokenRefused("the DPoP proof is for another token")
        issued = time_of(claims, "iat")
        if issued is None:
            raise TokenRefused("the DPoP proof does not say when it was made")
        if abs(time.time() - issued) > self._max_age:
            raise TokenRefused("the DPoP proof is not from now")
        id = claims.get("jti")
        if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID:
            raise TokenRefused("the DPoP proof has no usable `jti`")

    def _signer(self, signed: jose.Signed) -> str:
        """Give the thumbprint of the key a proof is signed with, which is in the proof itself."""
        jwk = signed.header.get("jwk")
        if jose.has_private_part(jwk):
            raise TokenRefused("the DPoP proof contains a private key")
        key = jose.public_key(jwk)
        if key is None or not jose.is_signed_by(signed, key):
            raise TokenRefused("the DPoP proof is not signed by its key")
        return key.thumbprint()

    # Nonces: this server's clock under a seal, so that nothing has to be remembered

    def nonce(self) -> str:
        """Give the nonce of the moment."""
        return self._nonce(int(time.time()) // _NONCE_STEP)

    def _nonce(self, step: int) -> str:
        assert self._secret is not None
        return hmac.new(self._secret, b"%d" % step, sha256).hexdigest()[:32]

    def _check_nonce(self, signed: jose.Signed) -> None:
        if self._secret is None:
            return
        given = str(signed.claims.get("nonce")).encode()
        step = int(time.time()) // _NONCE_STEP
        good = [hmac.compare_digest(given, self._nonce(step - n).encode()) for n in (0, 1)]
        if not any(good):
            raise NonceNeeded("the DPoP proof needs the nonce of this server")


def same_place(given: object, url: str) -> bool:
    """Whether two addresses name one place, queries and fragments aside."""
    if not isinstance(given, str):
        return False
    try:
        named, real = urlsplit(given), urlsplit(url)
        return origin_of(named) == origin_of(real) and (named.path or "/") == (real.path or "/")
    except ValueError:
        return False
