"""The access log of an endpoint: one record for each request, to the logger `mcpearl.access`.

An endpoint without one does nothing for it: which of the two serves is chosen when the endpoint is made.
"""

import logging
from typing import Any

from mcpearl.net.http_server.request import HeaderMap, HeaderPairs, PeerInfo, Request, Serving
from mcpearl.runtime import clock

logger = logging.getLogger("mcpearl.access")

_LONGEST = 128  # characters of anything that a client chose
_NAMED = (b"tools/call", b"prompts/get")  # what others name may hold arguments


class AccessLog:
    """Serves requests, and logs each when it has been answered."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def serve(self, request: Request) -> None:
        """Answer one request."""
        noted = NotedRequest(request)
        began = clock.monotonic()
        try:
            await self._serving.serve(noted)
        finally:
            if logger.isEnabledFor(logging.INFO):
                self._log(noted, (clock.monotonic() - began) * 1000)

    def _log(self, request: "NotedRequest", milliseconds: float) -> None:
        address = request.peer.address
        logger.info(
            "%s %s %s %s %d bytes %.1f ms%s",
            "-" if address is None else address[0],
            request.method,
            ascii((request.root + request.path)[:_LONGEST])[1:-1],
            request.status or "unanswered",
            request.size,
            milliseconds,
            _what(request.headers),
        )


def _what(headers: HeaderMap) -> str:
    """Return the method and the tool or prompt that a modern request names in its headers."""
    method = headers.get(b"mcp-method")
    if method is None:
        return ""
    name = headers.get(b"mcp-name") if method in _NAMED else None
    said = method if name is None else method + b" " + name
    return " " + ascii(said.decode("latin-1")[:_LONGEST])[1:-1]


class NotedRequest:
    """A request whose status and size are noted as it is answered."""

    __slots__ = ("_request", "head", "size", "status")

    def __init__(self, request: Request) -> None:
        self._request: Any = request
        self.head = request.head
        self.status = 0
        self.size = 0

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self._request.method)

    @property
    def path(self) -> str:
        """The decoded path."""
        return str(self._request.path)

    @property
    def root(self) -> str:
        """The path the endpoint is mounted at."""
        return str(self._request.root)

    @property
    def query(self) -> bytes:
        """The query string as it was sent."""
        query: bytes = self._request.query
        return query

    @property
    def headers(self) -> HeaderMap:
        """The headers by name."""
        headers: HeaderMap = self._request.headers
        return headers

    @property
    def peer(self) -> PeerInfo:
        """How the client reached the server."""
        peer: PeerInfo = self._request.peer
        return peer

    @property
    def in_place(self) -> bool:
        """Whether nothing has waited yet."""
        return bool(self._request.in_place)

    @in_place.setter
    def in_place(self, in_place: bool) -> None:
        self._request.in_place = in_place

    @property
    def body(self) -> bytes | None:
        """The body, if it is there."""
        body: bytes | None = self._request.body
        return body

    @body.setter
    def body(self, body: bytes | None) -> None:
        self._request.body = body

    @property
    def extra(self) -> HeaderPairs:
        """Headers of the response beside those the endpoint sends."""
        extra: HeaderPairs = self._request.extra
        return extra

    @extra.setter
    def extra(self, extra: HeaderPairs) -> None:
        self._request.extra = extra

    @property
    def waiter(self) -> Any:
        """The part of the endpoint that answers it."""
        return self._request.waiter

    @waiter.setter
    def waiter(self, waiter: Any) -> None:
        self._request.waiter = waiter

    async def read(self, limit: int, holding: Any) -> bytes:
        """Wait for the whole body, and count what has arrived."""
        body: bytes = await self._request.read(limit, holding)
        return body

    async def until_gone(self) -> None:
        """Wait until the client has closed its connection."""
        await self._request.until_gone()

    def respond_now(self, status: int, body: bytes, headers: HeaderPairs = ()) -> bool:
        """Send a whole response if that takes no waiting."""
        self.status, self.size = status, len(body)
        return bool(self._request.respond_now(status, body, headers))

    async def respond(self, status: int, body: bytes, headers: HeaderPairs = ()) -> None:
        """Send a whole response."""
        self.status, self.size = status, len(body)
        await self._request.respond(status, body, headers)

    async def start(self, status: int, headers: HeaderPairs) -> None:
        """Begin a response that is sent in parts."""
        self.status = status
        await self._request.start(status, headers)

    async def write(self, part: bytes) -> None:
        """Send a part of the body."""
        self.size += len(part)
        await self._request.write(part)

    async def end(self, part: bytes = b"") -> None:
        """Send the last part of the body."""
        self.size += len(part)
        await self._request.end(part)
