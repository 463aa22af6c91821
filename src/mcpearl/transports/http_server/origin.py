"""Where a request is for and which page it comes from: what protects a server from a browser.

A page of anybody's can make its reader's browser send requests to that reader's own machine. So the
host must be one that is served here, and an origin one that is welcome. HTTP and WebSocket alike.
"""

from collections.abc import Mapping

from mcpearl.transports.http_server.gate import Refused
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MAX_KNOWN = 1000  # places found right, remembered: most requests come from the same few


def hosts_of(host: str) -> frozenset[str] | None:
    """Which hosts a request may name, for a server that listens on `host`; None for any."""
    return LOCAL_HOSTS if host in ("127.0.0.1", "localhost", "::1") else None


class Location:
    """A path, the hosts it is served on, and the origins whose pages may come."""

    def __init__(
        self,
        path: str,
        allowed_hosts: frozenset[str] | None = None,
        allowed_origins: frozenset[str] | None = None,
    ) -> None:
        self._path = path.rstrip("/")
        self._hosts = allowed_hosts
        self._origins = allowed_origins
        self._known: set[tuple[str, bytes | None, bytes | None]] = set()

    def check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what is not for this place, or comes from a page that has no business here."""
        asked = path, headers.get(b"host"), headers.get(b"origin")
        if asked not in self._known:
            self._check(path, headers)
            if len(self._known) < _MAX_KNOWN:
                self._known.add(asked)

    def _check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        if path.rstrip("/") != self._path:
            raise Refused(404, f"There is nothing at {path[:128]!r}", METHOD_NOT_FOUND)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise Refused(421, f"Host {host[:128]!r} is not served here")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_welcome(origin.decode("latin-1").lower(), host):
            raise Refused(403, f"Origin {origin.decode('latin-1')[:128]!r} is not allowed here")

    def _is_welcome(self, origin: str, host: str) -> bool:
        if self._origins is not None:
            return origin in self._origins or "*" in self._origins
        # That origin and host are the same says nothing: a name of the attacker's may lead here.
        known = LOCAL_HOSTS if self._hosts is None else self._hosts
        # A scheme of its own is what pages inside of other programs have: their host says nothing.
        scheme, _, named = origin.partition("://")
        local = scheme in ("http", "https") and _without_port(named) in known
        return local and _without_port(host) in known


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host
