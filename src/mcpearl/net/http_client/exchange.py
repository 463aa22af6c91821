"""What an exchange over HTTP is to those who have one, whatever version of HTTP carries it."""

from typing import Protocol

Header = tuple[str, str]

MAX_HEAD = 64 * 1024  # bytes of the head of an answer
_CHALLENGE = "www-authenticate"


class ExchangeFailed(Exception):
    """An exchange that failed below HTTP. `sent` is False when nothing of it reached the server."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class HttpExchange(Protocol):
    """What one exchange has of a connection: all of it in HTTP/1.1, one stream of it in HTTP/2."""

    status: int
    headers: dict[str, str]
    """Of the answer, by name in lower case; of repeated ones the first, except challenges."""

    def send(self, method: str, target: str, headers: list[Header], body: bytes = b"") -> None:
        """Send a request."""
        ...

    async def answered(self) -> None:
        """Wait for the head of the answer: `status` and `headers`."""
        ...

    async def chunk(self) -> bytes:
        """Give the next part of the body; nothing at its end."""
        ...

    def release(self) -> None:
        """End the exchange. Where the answer is not over, the server is told at once."""
        ...


def note(headers: dict[str, str], name: str, value: str) -> None:
    """Keep a header of an answer. Servers send one challenge for each scheme they know."""
    if name not in headers:
        headers[name] = value
    elif name == _CHALLENGE:
        headers[name] += f", {value}"
