"""The responses to refused requests: status and `WWW-Authenticate` (RFC 6750, RFC 9728)."""

import re
from collections.abc import Iterable

from mcpearl.auth.server.jose import ALGORITHMS
from mcpearl.net.http_server.request import HeaderPairs
from mcpearl.transports.http_server.gate import Refused
from mcpearl.types.jsonrpc import INTERNAL_ERROR

_QUOTABLE = re.compile(r'[^\x20-\x7e]|["\\]')


class Challenges:
    """Makes the refusals of one resource."""

    def __init__(self, metadata_url: str, scopes: Iterable[str], *, dpop: bool) -> None:
        self._metadata_url = metadata_url
        self._scopes = " ".join(sorted(scopes))
        self._dpop = dpop

    def missing(self) -> Refused:
        """Refuse a request without a token; the challenge names no error."""
        header = self._header({"scope": self._scopes})
        return Refused(401, "This server needs an access token", headers=(header,))

    def malformed(self, reason: str) -> Refused:
        """Refuse a request whose credentials are malformed."""
        header = self._header({"error": "invalid_request", "error_description": reason})
        return Refused(400, reason, headers=(header,))

    def invalid(self, reason: str) -> Refused:
        """Refuse a token."""
        said = f"The access token is not accepted: {reason}"
        header = self._header(
            {"error": "invalid_token", "error_description": said, "scope": self._scopes}
        )
        return Refused(401, said, headers=(header,))

    def bad_proof(self, reason: str) -> Refused:
        """Refuse a DPoP proof."""
        header = self._header({"error": "invalid_dpop_proof", "error_description": reason})
        return Refused(401, f"The proof is not accepted: {reason}", headers=(header,))

    def needs_nonce(self, reason: str, nonce: str) -> Refused:
        """Refuse a DPoP proof without a nonce, and send the nonce to use."""
        header = self._header({"error": "use_dpop_nonce", "error_description": reason})
        return Refused(401, reason, headers=(header, (b"dpop-nonce", nonce.encode())))

    def insufficient(self, needed: Iterable[str]) -> Refused:
        """Refuse a token with too few scopes, and name all that are needed."""
        scopes = " ".join(sorted(needed))
        said = f"This needs the scopes: {scopes}"
        header = self._header(
            {"error": "insufficient_scope", "scope": scopes, "error_description": said}
        )
        return Refused(403, said, headers=(header,))

    def _header(self, parameters: dict[str, str]) -> tuple[bytes, bytes]:
        whole = {**parameters, "resource_metadata": self._metadata_url}
        if self._dpop:
            whole["algs"] = " ".join(ALGORITHMS)
        said = ", ".join(f'{name}="{_quoted(value)}"' for name, value in whole.items() if value)
        scheme = "DPoP" if self._dpop else "Bearer"
        return b"www-authenticate", f"{scheme} {said}".rstrip().encode("ascii")


def unavailable() -> Refused:
    """Refuse for now: tokens cannot be verified at the moment."""
    later: HeaderPairs = ((b"retry-after", b"5"),)
    return Refused(503, "Tokens cannot be verified at the moment", INTERNAL_ERROR, later)


def _quoted(text: str) -> str:
    """Replace characters that a quoted string of RFC 6750 must not contain."""
    return _QUOTABLE.sub("'", text)[:512]
