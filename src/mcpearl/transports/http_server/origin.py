"""Which host a request names and which page it comes from: protects a server from browsers.

Any page can make its reader's browser send requests to that reader's own machine (DNS rebinding). So
the host must be one that is served here, and the origin an allowed one. HTTP and WebSocket alike.
"""

from mcpearl.net.http_server.request import HeaderMap
from mcpearl.transports.http_server.gate import Refused
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


def hosts_of(host: str) -> frozenset[str] | None:
    """Return the hosts a request may name if the server listens on `host`; None for any."""
    return LOCAL_HOSTS if host in ("127.0.0.1", "localhost", "::1") else None


class Location:
    """A path, the hosts it is served on, and the origins whose pages may use it.

    Args:
        path: The path.
        allowed_hosts: Hosts a request may name, without ports; None or `*` for any.
        allowed_origins: Origins whose pages may send requests, `*` for all; None for local ones.
    """

    def __init__(
        self,
        path: str,
        allowed_hosts: frozenset[str] | None = None,
        allowed_origins: frozenset[str] | None = None,
    ) -> None:
        self._path = path.rstrip("/")
        self._hosts = None if allowed_hosts and "*" in allowed_hosts else allowed_hosts
        self._origins = allowed_origins

    def check(self, path: str, headers: HeaderMap) -> None:
        """Refuse a request for another path or host, or from an origin that is not allowed."""
        if path.rstrip("/") != self._path:
            raise Refused(404, f"There is nothing at {path[:128]!r}", METHOD_NOT_FOUND)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise Refused(421, f"Host {host[:128]!r} is not served here")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed(origin.decode("latin-1").lower(), host):
            raise Refused(403, f"Origin {origin.decode('latin-1')[:128]!r} is not allowed here")

    def _is_allowed(self, origin: str, host: str) -> bool:
        if self._origins is not None:
            return origin in self._origins or "*" in self._origins
        # Origin and host being equal proves nothing: an attacker's name may resolve to this machine.
        known = LOCAL_HOSTS if self._hosts is None else self._hosts
        # A scheme of its own is what pages inside of other programs have: their host says nothing.
        scheme, _, named = origin.partition("://")
        local = scheme in ("http", "https") and _without_port(named) in known
        return local and _without_port(host) in known


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host
