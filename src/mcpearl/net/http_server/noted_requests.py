"""Requests that note what they carried, and the status and size of their response, for an access log."""

from collections.abc import Sequence
from contextvars import Context
from typing import Any

from mcpearl.net.http_server.asgi_request import AsgiRequest
from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.net.http_server.request import HeaderPairs

_respond_now = Http1Request.respond_now


class NotedHttp1Request(Http1Request):
    """A request on one of our own connections."""

    status: int = 0
    """The status of the response; 0 as long as there is none."""
    size: int = 0
    """Bytes of its body."""
    carried: Sequence[Any] = ()
    """The calls that it carried, from when they begin until the request is logged."""
    contexts: list[Context] | None = None
    """The contexts of these calls, where they are logged."""

    def respond_now(self, status: int, body: bytes, headers: HeaderPairs = ()) -> bool:
        """Send a whole response, unless the client has to read first."""
        if not self.complete:
            self.status, self.size = status, len(body)
        return _respond_now(self, status, body, headers)

    async def start(self, status: int, headers: HeaderPairs) -> None:
        """Begin a response that is sent in parts."""
        self.status = status
        await super().start(status, headers)

    async def write(self, part: bytes) -> None:
        """Send a part of the body."""
        self.size += len(part)
        await super().write(part)

    async def end(self, part: bytes = b"") -> None:
        """Send the last part of the body."""
        self.size += len(part)
        await super().end(part)


class NotedAsgiRequest(AsgiRequest):
    """A request from an ASGI server."""

    __slots__ = ("carried", "contexts", "size", "status")

    def __init__(self, *details: Any) -> None:
        super().__init__(*details)
        self.status = 0
        """The status of the response; 0 as long as there is none."""
        self.size = 0
        """Bytes of its body."""
        self.carried: Sequence[Any] = ()
        """The calls that it carried, from when they begin until the request is logged."""

    async def start(self, status: int, headers: HeaderPairs) -> None:
        """Begin a response that is sent in parts."""
        self.status = status
        await super().start(status, headers)

    async def write(self, part: bytes) -> None:
        """Send a part of the body."""
        self.size += len(part)
        await super().write(part)

    async def end(self, part: bytes = b"") -> None:
        """Send the last part of the body."""
        self.size += len(part)
        await super().end(part)
