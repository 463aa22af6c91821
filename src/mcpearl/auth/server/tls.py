"""The certificate a client showed when its connection was made, as the ASGI server tells it.

`app.run("http", client_ca=…)` tells it, and so does every server with the ASGI extension `tls`. The
server has verified it, with the authorities it was given.
"""

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any


def client_certificate(scope: dict[str, Any]) -> str | None:
    """Give the client's own certificate in PEM; None when it showed none."""
    said = (scope.get("extensions") or {}).get("tls") or {}
    chain = said.get("client_cert_chain")
    return chain[0] if chain and not said.get("client_cert_error") else None


def certificate_digest(scope: dict[str, Any]) -> str | None:
    """Give the digest tokens are bound to (RFC 8705, `x5t#S256`)."""
    import ssl

    pem = client_certificate(scope)
    return None if pem is None else thumbprint(ssl.PEM_cert_to_DER_cert(pem))


def thumbprint(der: bytes) -> str:
    """Give the SHA-256 of a certificate as JOSE writes it."""
    return urlsafe_b64encode(sha256(der).digest()).rstrip(b"=").decode()
