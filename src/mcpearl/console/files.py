"""The files of the page, and the headers that keep it to itself.

The page loads nothing from elsewhere and runs no script but its own files. What a server sends is
never markup: trusted types forbid it even to a mistake in the page.
"""

from functools import lru_cache
from importlib.resources import files

from mcpearl.net.http_server.request import HeaderPairs

_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src blob:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)

SAFE: HeaderPairs = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every response."""


@lru_cache(maxsize=1)
def _page() -> dict[str, bytes]:
    """Read the files of the page, once, by name."""
    folder = files("mcpearl.console") / "page"
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def find(name: str) -> tuple[bytes, bytes] | None:
    """Return the type and the content of a file of the page; None if there is no such file."""
    kind = _TYPES.get(name.rpartition(".")[2])
    content = _page().get(name)
    return None if kind is None or content is None else (kind, content)
