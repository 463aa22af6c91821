"""One HTTP request as the endpoint sees it, whoever serves it.

Under a foreign ASGI server it comes as a scope and two callables; on our own protocol class straight
from its connection, without a detour through events. The endpoint does not know which.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

Scope = dict[str, Any]
Headers = tuple[tuple[bytes, bytes], ...]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

JSON = b"application/json"


class Lingerer(Protocol):
    """Something that wants to be looked after when it takes long."""

    def linger(self) -> None:
        """Note that it was not over at once."""
        ...


class Request(Protocol):
    """A request, and the way its response leaves."""

    method: str
    path: str
    """Inside the endpoint's own place, where that is mounted somewhere."""
    headers: dict[bytes, bytes]
    """By name in lower case."""
    body: bytes | None
    """All of it, where that has arrived; None where it is to be received."""
    extra: Headers
    """What every response to it has beside its own headers."""
    scope: Scope
    """The request in ASGI's words."""
    in_place: bool
    """Whether it is being served without having waited for anything yet."""
    exchange: Lingerer | None
    """Who is told when that ends."""

    def receive(self) -> Awaitable[dict[str, Any]]:
        """Wait for more of the body, or for the client to leave: an event of ASGI."""
        ...

    async def send(self, event: dict[str, Any]) -> None:
        """Give a part of the response: an event of ASGI."""
        ...

    async def respond(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """Give a whole response; a body is JSON."""
        ...


class Serving(Protocol):
    """Whoever answers requests."""

    async def serve(self, request: Request) -> None:
        """Answer one."""
        ...


class AsgiRequest:
    """A request of an ASGI server."""

    __slots__ = (
        "_send",
        "body",
        "exchange",
        "extra",
        "headers",
        "in_place",
        "method",
        "path",
        "receive",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        self.headers = gathered(scope["headers"])
        self.body: bytes | None = None
        self.extra: Headers = ()
        self.in_place = False  # nobody could tell when it no longer were
        self.exchange: Lingerer | None = None
        self.receive = receive
        self._send = send

    async def send(self, event: dict[str, Any]) -> None:
        """Give a part of the response."""
        if self.extra and event["type"] == "http.response.start":
            event["headers"] = [*event["headers"], *self.extra]
        await self._send(event)

    async def respond(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """Give a whole response; a body is JSON."""
        told = [*headers, *self.extra]
        if status != 204:
            told.append((b"content-length", b"%d" % len(body)))
        if body:
            told.append((b"content-type", JSON))
        await self._send({"type": "http.response.start", "status": status, "headers": told})
        await self._send({"type": "http.response.body", "body": body})


def gathered(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Give headers by name, which are in lower case."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        put(found, name, value)
    return found


def put(found: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    """Add a header to those found."""
    # Blanks around a value are not part of it (RFC 9110, 5.5); not every server removes them.
    value = value.strip(b" \t")
    # Given twice is a list, so nobody in between has read another value than is read here.
    found[name] = found[name] + b", " + value if name in found else value
