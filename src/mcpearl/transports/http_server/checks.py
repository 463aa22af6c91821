"""What an endpoint reads from the head of a request. A head that comes again is not checked again."""

from collections.abc import Callable
from typing import Any

from mcpearl.net.http_server.request import EVENTS, JSON, HeaderMap, HeaderPairs, Request, Work
from mcpearl.transports.http_server.gate import Refused
from mcpearl.transports.http_server.header_check import MessageHeaders

Serve = Callable[[Request, "HeadNotes", Any], Work | None]


class HeadNotes:
    """What was found out from one head alone."""

    __slots__ = ("cors", "is_preflight", "post", "serve")

    def __init__(self, cors: HeaderPairs, is_preflight: bool, serve: Serve) -> None:
        self.cors = cors
        """Headers that let the asking page read the response."""
        self.is_preflight = is_preflight
        """Whether a page asks what it may send."""
        self.serve = serve
        """What answers the requests that are admitted."""
        self.post: MessageHeaders | None = None
        """What a POST says about its message, once its types were checked."""


def read_post(headers: HeaderMap) -> MessageHeaders:
    """Check the types a POST names, and read what its headers say about its message."""
    check_type(headers)
    check_accept(headers, JSON, EVENTS)
    return MessageHeaders(headers)


def check_type(headers: HeaderMap) -> None:
    """Refuse a body that is not declared as JSON."""
    kind = headers.get(b"content-type", b"")
    if kind.partition(b";")[0].strip().lower() != JSON:
        raise Refused(415, "Content-Type must be application/json")


def check_accept(headers: HeaderMap, *kinds: bytes) -> None:
    """Refuse a client that does not accept every type the response may have."""
    accepted = headers.get(b"accept", b"*/*").lower()
    missing = [kind.decode() for kind in kinds if kind not in accepted]
    if missing and b"*/*" not in accepted:
        raise Refused(406, f"Accept must list {' and '.join(missing)}")
