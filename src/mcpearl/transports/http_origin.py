"""Where a request may come from: the host it names and the page it is made by.

A page anywhere can make a browser call a server on the same machine, and a name of its owner's may
lead there (DNS rebinding). So the host must be one this server goes by, and an origin one it knows.
"""

from collections.abc import Mapping

from mcpearl.transports.http_gate import Refused

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MAX_KNOWN = 1000  # pairs of host and origin found welcome, remembered


class Welcome:
    """Who is welcome: None for any host; None for the origins that go by an allowed host's name."""

    def __init__(self, hosts: frozenset[str] | None, origins: frozenset[str] | None) -> None:
        self._hosts = hosts
        self._origins = origins
        self._known: set[tuple[bytes | None, bytes | None]] = set()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `Refused` unless the request may be made from where it is."""
        place = headers.get(b"host"), headers.get(b"origin")
        if place not in self._known:
            self._check(*place)
            if len(self._known) < _MAX_KNOWN:
                self._known.add(place)

    def _check(self, host_header: bytes | None, origin: bytes | None) -> None:
        host = (host_header or b"").decode("latin-1").lower()
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise Refused(421, f"Host {host[:128]!r} is not served here")
        if origin is not None and not self._is_welcome(origin.decode("latin-1").lower(), host):
            raise Refused(403, f"Origin {origin.decode('latin-1')[:128]!r} is not allowed here")

    def _is_welcome(self, origin: str, host: str) -> bool:
        if self._origins is not None:
            return origin in self._origins or "*" in self._origins
        # That origin and host are the same says nothing: a name of the attacker's may lead here.
        known = LOCAL_HOSTS if self._hosts is None else self._hosts
        _, _, named = origin.partition("://")
        return _without_port(named) in known and _without_port(host) in known


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
