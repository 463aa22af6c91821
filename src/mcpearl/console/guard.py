"""Which requests the console answers: those of its own page, opened by a person who has the key."""

import hmac
import ipaddress

from mcpearl.net.http_server.request import RequestInfo
from mcpearl.transports.http_server.gate import Refused

KEY = b"x-console-key"
_JSON = b"application/json"


class Guard:
    """Checks every request that is not for a file.

    Other pages of the same browser can send requests here. They do not know the key, cannot set its
    header without being asked first (which is refused), and say where they come from.

    Args:
        key: The secret by which a page proves that the person who started the console opened it.
        only_local: Whether requests may only come from this machine.
    """

    def __init__(self, key: str, *, only_local: bool) -> None:
        self._key = key.encode()
        self._only_local = only_local

    def check(self, request: RequestInfo) -> None:
        """Refuse a request that did not come from a page of this console. Raises `Refused`."""
        headers = request.headers
        self.check_address(request)
        if headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
            raise Refused(403, "Only the console's own page may send requests here")
        origin = headers.get(b"origin")
        if origin is not None and not _is_own(origin, headers.get(b"host", b"")):
            raise Refused(403, "Only the console's own page may send requests here")
        if not hmac.compare_digest(headers.get(KEY, b""), self._key):
            raise Refused(
                403,
                "The key of the console is missing or wrong; the server printed it at its start",
            )
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if request.method == "POST" and kind != _JSON:
            raise Refused(
                415, "What the console is asked is JSON: `Content-Type: application/json`"
            )

    def check_address(self, request: RequestInfo) -> None:
        """Refuse a request from another machine, unless such requests are authenticated."""
        address = request.peer.address
        if self._only_local and address is not None and not is_local(address[0]):
            raise Refused(403, "The console is open to this machine only, unless it has `auth`")


def is_local(host: str) -> bool:
    """Whether an address, or the name of one, is of this machine's own network."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_own(origin: bytes, host: bytes) -> bool:
    scheme, _, named = origin.lower().partition(b"://")
    return scheme in (b"http", b"https") and named == host.lower()
