"""Signed tokens and their keys: only `TokenRefused` is raised, and no forged signature is accepted.

The input is a token as it is sent, or a header and claims, one a line, from which a token is made; a key
set is read from the same bytes.
"""

import json
from base64 import urlsafe_b64encode
from typing import Any

from joserfc.jwk import ECKey

from mcpearl.auth.server import jose
from mcpearl.auth.server.verifier import TokenRefused
from tests.fuzz.target import Target, require

# Public and private part of a key for tests, written out so that every run has the same one.
_PRIVATE: Any = {
    "kty": "EC",
    "crv": "P-256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
}
KEY = ECKey.import_key({name: _PRIVATE[name] for name in ("kty", "crv", "x", "y")})


def check(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    header, _, claims = text.partition("\n")
    _refused(text)
    _refused(".".join(_spelled(part) for part in (header, claims, "0" * 64)))
    _keys(claims or header)


def _refused(token: str) -> None:
    try:
        signed = jose.read(token)
    except TokenRefused:
        return
    require(signed.algorithm in jose.ALGORITHMS, "an algorithm that is not known")
    require(isinstance(signed.claims, dict), "claims that are not an object")
    require(len(token) <= jose.MAX_TOKEN, "a token over the bound")
    require(not jose.is_signed_by(signed, KEY), "a forged signature was accepted")


def _keys(text: str) -> None:
    try:
        jwk = json.loads(text)
    except (ValueError, RecursionError):
        return
    for each in jwk if isinstance(jwk, list) else [jwk]:
        key = jose.public_key(each)
        thumbprint = jose.thumbprint_of(each)
        jose.has_private_part(each)
        if key is not None:
            require(not key.is_private, "a private key was taken for a public one")
            require(thumbprint == key.thumbprint(), "two thumbprints of one key")
            for algorithm in jose.ALGORITHMS:
                jose.fits(key, algorithm)


def _spelled(part: str) -> str:
    return urlsafe_b64encode(part.encode("utf-8", "replace")).rstrip(b"=").decode()


def read(data: bytes) -> None:
    try:
        jose.read(data.decode("utf-8", "replace")[: jose.MAX_TOKEN])
    except TokenRefused:
        pass


WORDS = (
    b'{"alg":"ES256"}\n{"sub":"a"}',
    b'"alg":"none"',
    b'"alg":"RS256"',
    b'"alg":"EdDSA"',
    b'"kty":"EC"',
    b'"kty":"RSA","n":"AQAB","e":"AQAB"',
    b'"kty":"OKP","crv":"Ed25519"',
    b'"key_ops":["verify"]',
    b'"use":"sig"',
    b'"crit":[]',
    b".",
)
TARGET = Target("jose", check, WORDS, read)
