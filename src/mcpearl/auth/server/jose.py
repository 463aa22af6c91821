"""Reads compact JWS (signed JSON) and checks signatures with public keys.

Only asymmetric algorithms are supported. `none` and symmetric ones do not exist here, so a token cannot
make the server use them. Reading is cheap; the signature is checked last.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mcpearl.auth.server.verifier import TokenRefused
from mcpearl.protocol.codec import UNREADABLE

if TYPE_CHECKING:
    from joserfc.jwk import Key

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(_RSA, ("RSA", None)),
    **{name: ("EC", curve) for name, curve in _CURVES.items()},
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}
"""The algorithms by name, each with the type and the curve of its keys."""

MAX_TOKEN = 16 * 1024
_MIN_RSA_BITS = 2048
# By key type: the members that identify a key, in the order of their names.
_IDENTITY = {
    "RSA": ("e", "kty", "n"),
    "EC": ("crv", "kty", "x", "y"),
    "OKP": ("crv", "kty", "x"),
}
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class Signed(Struct, frozen=True):
    """A signed object whose signature has not been checked."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signature: bytes
    covered: bytes
    """The bytes that the signature covers."""

    @property
    def algorithm(self) -> str:
        """The algorithm that the header names."""
        return str(self.header["alg"])


_object = msgspec.json.Decoder(dict[str, Any])


def read(token: str) -> Signed:
    """Split a compact JWS. Raises `TokenRefused` if it is not valid."""
    if len(token) > MAX_TOKEN:
        raise TokenRefused(f"it is longer than {MAX_TOKEN} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("it is not a signed JWT")
    try:
        header, claims, signature = (_decode(part) for part in parts)
        signed = Signed(
            header=_object.decode(header),
            claims=_object.decode(claims),
            signature=signature,
            covered=token[: -len(parts[2]) - 1].encode("ascii"),
        )
    except (ValueError, *UNREADABLE):
        raise TokenRefused("it is not a signed JWT") from None
    algorithm = signed.header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused("its algorithm is not allowed")
    if "crit" in signed.header:
        raise TokenRefused("it demands extensions that this server does not support")
    return signed


def _decode(part: str) -> bytes:
    if not part or part.endswith("="):
        raise ValueError
    spelled = part.encode("ascii")
    if spelled.translate(None, _BASE64URL):
        raise ValueError
    return urlsafe_b64decode(spelled + b"=" * (-len(spelled) % 4))


_BASE64URL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def public_key(jwk: Any) -> "Key | None":
    """Read a public key; None if it is not a supported signature key."""
    from joserfc.jwk import JWKRegistry

    if not isinstance(jwk, dict) or jwk.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    if jwk.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in jwk.items() if name not in _PRIVATE}
    try:
        key = JWKRegistry.import_key(public)
        strong = jwk["kty"] != "RSA" or key.public_key.key_size >= _MIN_RSA_BITS  # type: ignore[union-attr]
    except Exception:  # whatever the library raises for a malformed key, only that key is skipped
        return None
    return key if strong else None


def fits(key: "Key", algorithm: str) -> bool:
    """Return whether a key belongs to this algorithm."""
    kind, curve = ALGORITHMS[algorithm]
    if key.key_type != kind or (curve is not None and key.get("crv") != curve):
        return False
    stated = key.get("alg")
    same = (algorithm,) if kind != "OKP" else ("EdDSA", "Ed25519")  # two names of one algorithm
    return stated is None or stated in same


def thumbprint_of(jwk: Any) -> str | None:
    """Return the thumbprint of a public key (RFC 7638); None when it cannot have one.

    It is computed from the key's members as they are written; the key itself is not checked.
    """
    kind = jwk.get("kty") if isinstance(jwk, dict) else None
    members = _IDENTITY.get(kind, ()) if isinstance(kind, str) else ()
    if not members or not all(isinstance(jwk.get(name), str) for name in members):
        return None
    written = msgspec.json.encode({name: jwk[name] for name in members})
    return urlsafe_b64encode(sha256(written).digest()).rstrip(b"=").decode()


def is_signed_by(signed: Signed, key: "Key") -> bool:
    """Return whether the signature was made with this key."""
    from joserfc.jws import JWSRegistry

    algorithm = JWSRegistry.algorithms[signed.algorithm]
    return fits(key, signed.algorithm) and algorithm.verify(signed.covered, signed.signature, key)


def has_private_part(jwk: Any) -> bool:
    """Return whether a JWK contains private members, which must never be published."""
    return isinstance(jwk, dict) and not _PRIVATE.isdisjoint(jwk)
