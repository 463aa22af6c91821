"""The first lines of HTTP messages. Most are the same few, so each is made or parsed once."""

from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools


@lru_cache(maxsize=256)
def parse_target(target: bytes) -> tuple[str, bytes, bytes | None]:
    """Return the decoded path, the query and the host of a request target.

    Only a target in absolute form names a host. Raises `ValueError` if the target is malformed.
    """
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserError:
        raise ValueError("not a request target") from None
    if parsed.path is None:
        raise ValueError("a request target without a path")
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.query or b"", _host_in(parsed)


def _host_in(parsed: Any) -> bytes | None:
    """Return the value of the Host header for this URL; None if it names no host."""
    host: bytes | None = parsed.host
    if parsed.userinfo is not None:
        raise ValueError("a request target with the name of a user")
    if host is not None and b":" in host:
        host = b"[%b]" % host
    return host if host is None or parsed.port is None else b"%b:%d" % (host, parsed.port)


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """Return the first line of a response."""
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())
