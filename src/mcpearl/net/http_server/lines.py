"""The first lines of HTTP messages. Most are the same few, so each is made or parsed once."""

from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote

import httptools


@lru_cache(maxsize=256)
def parse_target(target: bytes) -> tuple[str, bytes]:
    """Return the decoded path and the query of a request target; `ValueError` if it is malformed."""
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserError:
        raise ValueError("not a request target") from None
    if parsed.path is None:
        raise ValueError("a request target without a path")
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.query or b""


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """Return the first line of a response."""
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())
