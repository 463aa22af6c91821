"""Connections of which the bytes are counted, for metrics. Others do no work for it."""

import asyncio
from typing import TYPE_CHECKING, Any

from mcpearl.net.http_server.http1_connection import HttpServerConnection

if TYPE_CHECKING:
    from mcpearl.net.http_server.front import HttpFront

_data_received = HttpServerConnection.data_received


class CountedTransport:
    """A transport that counts what is written to it, and is the original one in everything else.

    Args:
        original: The transport.
        front: Where the bytes are counted.
    """

    def __init__(self, original: asyncio.Transport, front: "HttpFront") -> None:
        self.original = original
        self._write = original.write
        self._front = front

    def write(self, data: bytes) -> None:
        """Count bytes, and write them."""
        self._front.sent += len(data)
        self._write(data)

    def __getattr__(self, name: str) -> Any:
        """Return a method of the original, and keep it: it is found faster the next time."""
        found = getattr(self.original, name)
        setattr(self, name, found)
        return found


class CountedConnection(HttpServerConnection):
    """A connection whose bytes are counted."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        counted: Any = CountedTransport(transport, self.front)  # type: ignore[arg-type]
        super().connection_made(counted)

    def data_received(self, data: bytes) -> None:
        """Count bytes, and take them."""
        self.front.received += len(data)
        _data_received(self, data)

    def _leave(self) -> None:
        """Leave, and count nothing more: a WebSocket that takes the connection over counts for itself."""
        super()._leave()
        transport: Any = self.transport
        if isinstance(transport, CountedTransport):
            self.transport = transport.original
