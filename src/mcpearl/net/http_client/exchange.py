"""One HTTP exchange, as its user sees it, whichever version of HTTP carries it."""

from typing import Protocol

Header = tuple[str, str]

MAX_HEAD = 64 * 1024  # most bytes of the head of an answer
_CHALLENGE = "www-authenticate"


class ExchangeFailed(Exception):
    """An exchange failed below HTTP. `sent` is False when nothing of it reached the server."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class HttpExchange(Protocol):
    """One request and its answer: on a connection in HTTP/1.1, on a stream in HTTP/2."""

    status: int
    headers: dict[str, str]
    """Headers of the answer by lower-case name. Repeated challenges are joined; else the first counts."""

    def send(self, method: str, target: str, headers: list[Header], body: bytes = b"") -> None:
        """Send a request."""
        ...

    async def answered(self) -> None:
        """Wait for the head of the answer: `status` and `headers`."""
        ...

    async def chunk(self) -> bytes:
        """Return the next part of the body; empty at its end."""
        ...

    def release(self) -> None:
        """End the exchange. If the answer is not complete, the server is notified at once."""
        ...


def note(headers: dict[str, str], name: str, value: str) -> None:
    """Add a header of an answer. Challenges are joined: a server may send one for each scheme."""
    if name not in headers:
        headers[name] = value
    elif name == _CHALLENGE:
        headers[name] += f", {value}"
