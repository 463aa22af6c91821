"""Headers that let pages of other origins read responses. `origin` decides which origins may."""

from mcpearl.net.http_server.request import HeaderMap, HeaderPairs

PUBLIC: HeaderPairs = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-headers", b"*"),  # for clients that send headers of their own
)
_EXPOSED = b"mcp-session-id, mcp-protocol-version, www-authenticate, dpop-nonce"


def readable_by(origin: bytes) -> HeaderPairs:
    """Return the headers that let the pages of an allowed origin read a response."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    )


def preflight(headers: HeaderMap) -> HeaderPairs:
    """Return the answer to an allowed origin's preflight request."""
    asked = headers.get(b"access-control-request-headers", b"*")
    return (
        (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
        (b"access-control-allow-headers", asked),
        (b"access-control-max-age", b"600"),
    )
