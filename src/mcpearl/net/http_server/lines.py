"""The first lines of HTTP messages. Most are the same few, so each is made or read once."""

from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote

import httptools


@lru_cache(maxsize=256)
def place_of(url: bytes) -> tuple[str, bytes, bytes]:
    """Take an address apart: its path, that as it was sent, and its query. `ValueError` if it is none."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserError:
        raise ValueError("not an address") from None
    if parsed.path is None:
        raise ValueError("an address without a path")
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """Give the first line of a response."""
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())
