"""Digests of the certificates that clients present, which tokens are bound to.

A certificate is known with `app.run("http", client_ca=…)` and on servers with the ASGI extension `tls`.
The server has already verified it against its trusted authorities.
"""

from base64 import urlsafe_b64encode
from hashlib import sha256


def certificate_digest(pem: str | None) -> str | None:
    """Return the digest of a certificate that tokens are bound to (RFC 8705, `x5t#S256`)."""
    import ssl

    return None if pem is None else thumbprint(ssl.PEM_cert_to_DER_cert(pem))


def thumbprint(der: bytes) -> str:
    """Return the SHA-256 of a certificate in JOSE's encoding."""
    return urlsafe_b64encode(sha256(der).digest()).rstrip(b"=").decode()
