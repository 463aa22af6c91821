"""Compresses large responses for clients that accept it: zstd if it is installed, otherwise gzip.

Only whole responses are compressed: an event in a stream must not wait for others to compress with it.
"""

import asyncio
import gzip
import importlib
from collections.abc import Callable

MIN_SIZE = 16 * 1024  # bytes from which compressing is worth the work
_OFF_LOOP = 256 * 1024  # bytes from which it is done in a thread

Compress = Callable[[bytes], bytes]


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=4, mtime=0)


def _find_zstd() -> Compress | None:
    try:
        compress: Compress = importlib.import_module("zstandard").compress
    except ImportError:
        return None
    return compress


_known: dict[bytes, Compress] | None = None  # best first; made when first needed


def _encodings() -> dict[bytes, Compress]:
    global _known
    if _known is None:
        zstd = _find_zstd()
        _known = {b"gzip": _gzip} if zstd is None else {b"zstd": zstd, b"gzip": _gzip}
    return _known


def chosen(accepted: bytes) -> bytes | None:
    """Return the best encoding that `Accept-Encoding` allows, or None.

    >>> chosen(b"br;q=1.0, gzip;q=0.8")
    b'gzip'
    """
    weights: dict[bytes, float] = {}
    for part in accepted.lower().split(b","):
        name, _, weight = part.partition(b";")
        try:
            weights[name.strip()] = float(weight.strip().removeprefix(b"q=") or b"1")
        except ValueError:
            continue
    rest = weights.get(b"*", 0.0)
    best = max(_encodings(), key=lambda name: weights.get(name, rest))  # the first of equals
    return best if weights.get(best, rest) > 0 else None


async def encoded(body: bytes, accepted: bytes) -> tuple[bytes, bytes | None]:
    """Return the body in the best encoding the client accepts, and the name of that encoding."""
    name = chosen(accepted)
    if name is None:
        return body, None
    compress = _encodings()[name]
    if len(body) < _OFF_LOOP:
        return compress(body), name
    return await asyncio.to_thread(compress, body), name
