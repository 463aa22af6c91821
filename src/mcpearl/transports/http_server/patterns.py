"""Patterns of hosts and origins, such as `*.example.com`, for `allowed_hosts` and `allowed_origins`.

A host without a port means any port, as `example.com:*` does. An origin without a port means the one of
its scheme; `https://example.com:*` means any. `*` alone means everything.
"""

from collections.abc import Iterable

from mcpearl.runtime.arguments import Unusable, refuse_text

_ANY = "*"


def hosts(given: Iterable[str]) -> "Patterns | None":
    """Return the patterns of `allowed_hosts`; None if they allow every host."""
    refuse_text("allowed_hosts", given)
    return _patterns([_host(one) for one in given])


def origins(given: Iterable[str]) -> "Patterns | None":
    """Return the patterns of `allowed_origins`; None if they allow every origin."""
    refuse_text("allowed_origins", given)
    return _patterns([_origin(one) for one in given])


class Patterns:
    """Decides whether a host or an origin, in lower case, is one of those that are listed."""

    __slots__ = ("_any_port", "_exact", "_wild")

    def __init__(self, given: Iterable[str]) -> None:
        self._exact: set[str] = set()
        self._any_port: set[str] = set()  # names that are allowed with every port
        # What comes before and after the `*` of a name, and whether every port is allowed.
        self._wild: list[tuple[str, str, bool]] = []
        for one in given:
            name, any_port = one.removesuffix(":*"), one.endswith(":*")
            if _ANY in name:
                before, _, after = name.partition(_ANY)
                self._wild.append((before, after, any_port))
            else:
                (self._any_port if any_port else self._exact).add(name)

    def __contains__(self, name: str) -> bool:
        bare = without_port(name)
        if name in self._exact or bare in self._any_port:
            return True
        for before, after, any_port in self._wild:
            candidate = bare if any_port else name
            inside = candidate[len(before) : len(candidate) - len(after)]
            if inside and candidate == before + inside + after:
                return True
        return False


def without_port(name: str) -> str:
    """Return a host or an origin without its port."""
    host, colon, port = name.rpartition(":")
    return host if colon and port.isascii() and port.isdigit() else name


def _patterns(given: list[str]) -> Patterns | None:
    return None if _ANY in given else Patterns(given)


def _host(given: str) -> str:
    host = given.strip().lower()
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"  # an IPv6 address, as the Host header has it
    if not host or "/" in host or not _is_wild_in_front(host.removesuffix(":*")):
        raise Unusable(
            f"`allowed_hosts` has {given!r}, which is not a host; write 'mcp.example.com' or "
            "'*.example.com', without a scheme"
        )
    if host == _ANY or host.endswith(":*") or without_port(host) != host:
        return host
    return f"{host}:*"


def _origin(given: str) -> str:
    origin = given.strip().lower().removesuffix("/")
    if origin in (_ANY, "null"):
        return origin
    scheme, separator, host = origin.partition("://")
    host = host.removesuffix(":*")
    if not (scheme and separator and host) or "/" in host or not _is_wild_in_front(host):
        raise Unusable(
            f"`allowed_origins` has {given!r}, which is not an origin; write "
            "'https://app.example.com' or 'https://*.example.com', with a scheme and without a path"
        )
    default = {"http": ":80", "https": ":443"}.get(scheme)
    return origin.removesuffix(default) if default else origin  # browsers leave it out


def _is_wild_in_front(host: str) -> bool:
    """Whether a `*`, if there is one, stands for the beginning of a host name."""
    return _ANY not in host or host == _ANY or (host.startswith("*.") and host.count(_ANY) == 1)
