"""One HTTP request as its endpoint sees it, whichever server received it.

`Http1Request` comes from one of our own connections, `AsgiRequest` from an ASGI server. The endpoint,
its gate and its origin check know only this interface.
"""

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from mcpearl.runtime.budget import Holding

HeaderPairs = tuple[tuple[bytes, bytes], ...]
HeaderMap = Mapping[bytes, bytes]
Work = Coroutine[Any, Any, None]

JSON = b"application/json"
EVENTS = b"text/event-stream"


class BodyTooLarge(Exception):
    """The body of a request is over the limit."""


class ClientLeft(Exception):
    """The client closed its connection before its request was complete."""


class PeerInfo(NamedTuple):
    """How a client reached the server."""

    scheme: str = "http"
    """`http` or `https`; `ws` or `wss` for a WebSocket."""
    address: tuple[str, int] | None = None
    """The client's host and port, where the socket has them."""
    certificate: str | None = None
    """The client's certificate in PEM, which TLS has verified."""
    passed_on: bool = False
    """Whether another worker has admitted the request and passed it on."""


class Head:
    """What a request says before its body. It does not change.

    Clients repeat themselves: on our own connections a head that arrives again byte for byte is the
    same object again.
    """

    __slots__ = (
        "chunks",
        "end",
        "headers",
        "keep_alive",
        "method",
        "noted",
        "path",
        "query",
        "raw",
        "size",
    )

    def __init__(self, method: str, path: str, query: bytes, headers: HeaderMap) -> None:
        self.method = method
        self.path = path
        """Decoded; without the path the endpoint is mounted at."""
        self.query = query
        self.headers = headers
        """By name in lower case."""
        self.keep_alive = True  # the connection stays open after the response
        self.chunks = True  # the client understands chunked bodies
        self.raw = (
            b""  # the bytes of the head; only of those that are remembered, as `end` and `size`
        )
        self.end = -1  # where its body begins
        self.size = -1  # of the head and its body
        self.noted: Any = None
        """What the endpoint found out from the head alone. Only the endpoint sets it."""


class RequestInfo(Protocol):
    """What a gate may know about a request."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        ...

    @property
    def path(self) -> str:
        """The decoded path, without `root`."""
        ...

    @property
    def root(self) -> str:
        """The path the endpoint is mounted at, usually empty."""
        ...

    @property
    def query(self) -> bytes:
        """The query string as it was sent."""
        ...

    @property
    def headers(self) -> HeaderMap:
        """The headers by name in lower case."""
        ...

    @property
    def peer(self) -> PeerInfo:
        """How the client reached the server."""
        ...


class UpgradeRequest(NamedTuple):
    """The request that opens a WebSocket: a head and a peer, without a body."""

    path: str
    query: bytes
    headers: HeaderMap
    peer: PeerInfo
    root: str = ""
    method: str = "GET"


class Waiter(Protocol):
    """The part of an endpoint that answers one request."""

    def waits(self) -> None:
        """Note that the request could not be answered without waiting."""
        ...

    def close(self) -> None:
        """Release everything: the request is over, however it ended."""
        ...


class Request(RequestInfo, Protocol):
    """A request, and the way its response leaves."""

    head: Head
    body: bytes | None
    """The whole body, if it has arrived; None if it has to be `read`."""
    extra: HeaderPairs
    """Headers that the endpoint adds to every response to this request."""
    in_place: bool
    """Whether the request is being served without having waited for anything yet."""
    waiter: Waiter | None
    """Notified when that ends. Set and closed by the endpoint."""

    async def read(self, limit: int, holding: Holding) -> bytes:
        """Wait for the whole body, and count what has arrived.

        Args:
            limit: Bytes the body may have.
            holding: Counts them while the body arrives.

        Raises:
            BodyTooLarge: It has more bytes.
            ClientLeft: It will not be complete.
            NoRoom: The client holds too much.
        """
        ...

    async def until_gone(self) -> None:
        """Wait until the client has closed its connection. The body must have been read."""
        ...

    def respond_now(self, status: int, body: bytes, headers: HeaderPairs = ()) -> bool:
        """Send a whole response if that takes no waiting. Return whether nothing is left to do."""
        ...

    def respond(self, status: int, body: bytes, headers: HeaderPairs = ()) -> Work:
        """Send a whole response. A body is JSON."""
        ...

    async def start(self, status: int, headers: HeaderPairs) -> None:
        """Begin a response that is sent in parts; the head may leave with the first part."""
        ...

    async def write(self, part: bytes) -> None:
        """Send a part of the body, after the client has read most of the earlier ones."""
        ...

    async def end(self, part: bytes = b"") -> None:
        """Send the last part of the body, which may be empty."""
        ...


class Serving(Protocol):
    """An endpoint: it answers requests."""

    def serve(self, request: Request) -> Work | None:
        """Answer one request as far as nothing has to be waited for; return the rest, if there is any."""
        ...


def gathered(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by name. The names must be in lower case."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        put(found, name, value)
    return found


def put(found: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    """Add a header to those found."""
    # Blanks around a value are not part of it (RFC 9110, 5.5); not every server removes them.
    value = value.strip(b" \t")
    # Repeated headers are joined, so that no intermediary can have read a value that is missing here.
    found[name] = found[name] + b", " + value if name in found else value
