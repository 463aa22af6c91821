"""One form for every URI, so that equivalent spellings name one resource (RFC 3986, section 6.2.2).

Resources are routed, checked against scopes and subscribed to in this form. No import here: every
server loads this module when it starts.
"""

MAX_URI = 8192
"""Characters of a URI that may have several spellings. A longer one fits no template."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HEX = frozenset(b"0123456789ABCDEFabcdef")
_HEX_DIGITS = frozenset(b"%c" % digit for digit in _HEX)


def normal_uri(uri: str) -> str:
    """Decode what need not be escaped, escape what must be, and write escapes in upper case.

    >>> normal_uri("note://m%61ster/%c3%a9")
    'note://master/%C3%A9'
    """
    if len(uri) > MAX_URI:
        return uri
    if uri.isascii():
        return _respelled(uri.encode()).decode() if "%" in uri else uri
    spelled = uri.encode(errors="surrogatepass")
    ascii = b"".join(b"%c" % byte if byte < 128 else b"%%%02X" % byte for byte in spelled)
    return _respelled(ascii).decode()


def _respelled(uri: bytes) -> bytes:
    first, *rest = uri.split(b"%")
    parts = [first]
    # After a `%` that is not an escape: the hexadecimal digits so far, at most one.
    begun: bytes | None = None
    for part in rest:
        digits = part[:2]
        if len(digits) < 2 or not _HEX.issuperset(digits):
            parts += (b"%", part)  # not an escape
            begun = part if _HEX.issuperset(part) else None
            continue
        byte, after = int(digits, 16), part[2:]
        if byte in _UNRESERVED and not _completes(begun, byte, after):
            parts += (b"%c" % byte, after)
            begun = b"%c" % byte if begun == b"" and byte in _HEX and not after else None
        else:
            parts += (b"%", digits.upper(), after)
            begun = None
    return b"".join(parts)


def _completes(begun: bytes | None, byte: int, after: bytes) -> bool:
    """Whether a byte would turn an earlier `%`, which is not an escape, into one."""
    if begun is None or byte not in _HEX:
        return False
    return bool(begun) or after[:1] in _HEX_DIGITS
