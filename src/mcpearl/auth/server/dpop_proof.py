"""Checks DPoP proofs (RFC 9449), which show that the sender of a token holds the token's key.

A proof is for one request: it names the method, URL and token, must be recent, and can be used once. Used
proofs are remembered (`proof_memory`), within bounds, until they are too old to be accepted.
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from mcpearl.auth.server import jose
from mcpearl.auth.server.proof_memory import ProofMemory
from mcpearl.auth.server.verifier import TokenRefused, time_of
from mcpearl.net.http_client.urls import origin_of
from mcpearl.runtime import clock

_MAX_ID = 256  # characters
_NONCE_STEP = 60  # seconds a nonce is handed out; it stays valid for as long again


class NonceNeeded(TokenRefused):
    """The proof is valid, but lacks a nonce of this server."""


class ProofChecker:
    """Checks the proofs of requests to one resource."""

    def __init__(
        self,
        *,
        max_age: float,
        memory: ProofMemory,
        nonces: Callable[[], Sequence[bytes]] | None,
    ) -> None:
        self._max_age = max_age
        # The keys that nonces are derived from, the first for new ones; None if they are not used.
        self._secrets = nonces
        self._memory = memory

    def check(
        self, proof: bytes | None, method: str, url: str, token: str, thumbprint: str
    ) -> tuple[str, float]:
        """Check a proof for the key with this thumbprint; return its id and when it stops being valid.

        Raises `TokenRefused`.
        """
        if proof is None:
            raise TokenRefused("the DPoP header is missing")
        try:
            signed = jose.read(proof.decode("ascii"))
        except (UnicodeDecodeError, TokenRefused):
            raise TokenRefused("the DPoP proof is not a signed JWT") from None
        if signed.header.get("typ") != "dpop+jwt":
            raise TokenRefused("the DPoP proof does not have the type `dpop+jwt`")
        self._check_claims(signed, method, url, token)
        self._check_signer(signed, thumbprint)
        self._check_nonce(signed)
        until = signed.claims["iat"] + self._max_age
        id: str = signed.claims["jti"]
        self._memory.note(thumbprint, id, until)
        return id, until

    def _check_claims(self, signed: jose.Signed, method: str, url: str, token: str) -> None:
        claims = signed.claims
        if claims.get("htm") != method:
            raise TokenRefused("the DPoP proof is for another method")
        if not same_place(claims.get("htu"), url):
            raise TokenRefused("the DPoP proof is for another URL")
        hashed = urlsafe_b64encode(sha256(token.encode()).digest()).rstrip(b"=")
        given = claims.get("ath")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), hashed):
            raise TokenRefused("the DPoP proof is for another token")
        issued = time_of(claims, "iat")
        if issued is None:
            raise TokenRefused("the DPoP proof does not say when it was made")
        if abs(clock.now() - issued) > self._max_age:
            raise TokenRefused("the DPoP proof is too old or from the future")
        id = claims.get("jti")
        if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID:
            raise TokenRefused("the DPoP proof has no usable `jti`")

    def _check_signer(self, signed: jose.Signed, thumbprint: str) -> None:
        """Check that the key in a proof is the one with this thumbprint, then its signature.

        The order matters: checking a signature with an unusual key can be expensive.
        """
        jwk = signed.header.get("jwk")
        if jose.has_private_part(jwk):
            raise TokenRefused("the DPoP proof contains a private key")
        if (given := jose.thumbprint_of(jwk)) is not None and given != thumbprint:
            raise TokenRefused("the DPoP proof is made with another key than the token is bound to")
        key = None if given is None else jose.public_key(jwk)
        if key is None or not jose.is_signed_by(signed, key):
            raise TokenRefused("the DPoP proof is not signed by its key")

    # Nonces are derived from the clock with a secret, so they need not be remembered

    def nonce(self) -> str:
        """Return the current nonce."""
        assert self._secrets is not None
        return _nonce(self._secrets()[0], int(clock.now()) // _NONCE_STEP)

    def _check_nonce(self, signed: jose.Signed) -> None:
        if self._secrets is None:
            return
        given = str(signed.claims.get("nonce")).encode()
        step = int(clock.now()) // _NONCE_STEP
        nonces = [_nonce(secret, step - n) for secret in self._secrets() for n in (0, 1)]
        good = [hmac.compare_digest(given, nonce.encode()) for nonce in nonces]
        if not any(good):
            raise NonceNeeded("the DPoP proof needs the nonce of this server")


def _nonce(secret: bytes, step: int) -> str:
    return hmac.new(secret, b"dpop %d" % step, sha256).hexdigest()[:32]


def same_place(given: object, url: str) -> bool:
    """Return whether two URLs are the same except for query and fragment."""
    if not isinstance(given, str):
        return False
    try:
        named, real = urlsplit(given), urlsplit(url)
        return origin_of(named) == origin_of(real) and (named.path or "/") == (real.path or "/")
    except ValueError:
        return False
