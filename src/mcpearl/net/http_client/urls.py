"""The parts of an `http://` or `https://` address that a client needs."""

from urllib.parse import SplitResult, quote, urlsplit

_PORTS = {"http": 80, "https": 443}
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


def split_address(url: str) -> SplitResult:
    """Split an address, or raise `ValueError` saying what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"not an http:// or https:// address: {url!r}")
    if any(character <= " " or character == "\x7f" for character in url):
        raise ValueError(f"a blank or control character in an address: {url!r}")
    return parts


def origin_of(url: SplitResult) -> str:
    """Return scheme, host and port, the port only when it is not the default."""
    port = "" if url.port in (None, _PORTS.get(url.scheme)) else f":{url.port}"
    return f"{url.scheme}://{host_of(url)}{port}"


def target_of(url: SplitResult) -> str:
    """Return path and query as in a request line, with blanks and control characters quoted."""
    return quote((url.path or "/") + (f"?{url.query}" if url.query else ""), safe=_VISIBLE)


def host_of(url: SplitResult) -> str:
    """Return the host in ASCII, an IPv6 address in brackets."""
    host = (url.hostname or "").encode("idna").decode()
    return f"[{host}]" if ":" in host else host


def port_of(url: SplitResult) -> int:
    """Return the port, or the default of the scheme."""
    return url.port or _PORTS[url.scheme]
