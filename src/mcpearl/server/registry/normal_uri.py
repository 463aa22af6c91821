"""One form for every URI, so that equivalent spellings name one resource (RFC 3986, section 6.2.2).

Resources are routed, checked against scopes and subscribed to in this form. No import here: every
server loads this module when it starts.
"""

MAX_URI = 8192
"""Characters of a URI that may have several spellings. A longer one fits no template."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HEX = frozenset(b"0123456789ABCDEFabcdef")


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
    for part in rest:
        digits = part[:2]
        if len(digits) < 2 or not _HEX.issuperset(digits):
            parts += (b"%", part)  # not an escape
        elif (byte := int(digits, 16)) in _UNRESERVED:
            parts += (b"%c" % byte, part[2:])
        else:
            parts += (b"%", digits.upper(), part[2:])
    return b"".join(parts)
