"""Checks which host a request names and which page it comes from, to protect a server from browsers.

Any page can make its reader's browser send requests to that reader's own machine (DNS rebinding). So
the host must be one that is served here, and the origin an allowed one, for HTTP and WebSocket alike.
"""

from collections.abc import Collection

from mcpearl.net.http_server.request import HeaderMap
from mcpearl.transports.http_server import patterns
from mcpearl.transports.http_server.gate import Refused
from mcpearl.transports.http_server.patterns import without_port
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


def hosts_of(host: str) -> frozenset[str] | None:
    """Return the hosts a request may name if the server listens on `host`; None for any."""
    return LOCAL_HOSTS if host in ("127.0.0.1", "localhost", "::1") else None


class ServedLocation:
    """A path, the hosts it is served on, and the origins whose pages may use it.

    Args:
        path: The path.
        allowed_hosts: Hosts a request may name, or patterns of them; None or `*` for any.
        allowed_origins: Origins whose pages may send requests, or patterns; `*` for all, None for local
            ones.
    """

    def __init__(
        self,
        path: str,
        allowed_hosts: Collection[str] | None = None,
        allowed_origins: Collection[str] | None = None,
    ) -> None:
        self._path = path.rstrip("/")
        self._hosts = None if allowed_hosts is None else patterns.hosts(allowed_hosts)
        self._known = self._hosts or patterns.Patterns(f"{host}:*" for host in LOCAL_HOSTS)
        self._only_local = allowed_origins is None
        self._origins = None if allowed_origins is None else patterns.origins(allowed_origins)

    def check(self, path: str, headers: HeaderMap, root: str = "") -> None:
        """Refuse a request for another path or host, or from an origin that is not allowed.

        `root` is the path this one is mounted at, which the answer to a wrong path names.
        """
        if path.rstrip("/") != self._path:
            here = f"{root}{self._path}" or "/"
            reason = f"There is nothing at {(root + path)[:128]!r}; MCP is served at {here!r}"
            raise Refused(404, reason, METHOD_NOT_FOUND)
        host = self.check_host(headers)
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed(origin.decode("latin-1").lower(), host):
            named = origin.decode("latin-1")[:128]
            reason = (
                f"Origin {named!r} is not allowed here; the server's `allowed_origins` lists those"
            )
            raise Refused(403, f"{reason} that are")

    def check_host(self, headers: HeaderMap) -> str:
        """Refuse a request for another host; return the host."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and host not in self._hosts:
            reason = (
                f"Host {host[:128]!r} is not served here; the server's `allowed_hosts` lists those"
            )
            raise Refused(421, f"{reason} that are")
        return host

    def _is_allowed(self, origin: str, host: str) -> bool:
        if not self._only_local:
            return self._origins is None or origin in self._origins
        # Origin and host being equal proves nothing: an attacker's name may resolve to this machine.
        # Pages inside other programs have a scheme of their own; the host in their origin proves nothing.
        scheme, _, named = origin.partition("://")
        local = scheme in ("http", "https") and without_port(named) in self._known
        return local and without_port(host) in self._known
