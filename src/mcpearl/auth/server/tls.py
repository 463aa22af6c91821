"""The certificate a client presented when it connected, as reported by the ASGI server.

It is available with `app.run("http", client_ca=…)` and on servers with the ASGI extension `tls`. The
server has already verified it against its trusted authorities.
"""

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any


def client_certificate(scope: dict[str, Any]) -> str | None:
    """Return the client's own certificate in PEM, or None if it presented none."""
    said = (scope.get("extensions") or {}).get("tls") or {}
    chain = said.get("client_cert_chain")
    return chain[0] if chain and not said.get("client_cert_error") else None


def certificate_digest(scope: dict[str, Any]) -> str | None:
    """Return the digest that tokens are bound to (RFC 8705, `x5t#S256`)."""
    import ssl

    pem = client_certificate(scope)
    return None if pem is None else thumbprint(ssl.PEM_cert_to_DER_cert(pem))


def thumbprint(der: bytes) -> str:
    """Return the SHA-256 of a certificate in JOSE's encoding."""
    return urlsafe_b64encode(sha256(der).digest()).rstrip(b"=").decode()
