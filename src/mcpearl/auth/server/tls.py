"""Digests of client certificates, which tokens are bound to.

`app.run("http", client_ca=…)` has the certificate of a connection, and so has every ASGI server with
the extension `tls`. The server has verified it, with the authorities it was given.
"""

from base64 import urlsafe_b64encode
from hashlib import sha256


def certificate_digest(pem: str | None) -> str | None:
    """Return the digest of a certificate that tokens are bound to (RFC 8705, `x5t#S256`)."""
    import ssl

    return None if pem is None else thumbprint(ssl.PEM_cert_to_DER_cert(pem))


def thumbprint(der: bytes) -> str:
    """Return the SHA-256 of a certificate as JOSE writes it."""
    return urlsafe_b64encode(sha256(der).digest()).rstrip(b"=").decode()
