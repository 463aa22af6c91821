"""A request that asks to change the protocol of its connection: to WebSocket, or to another one."""

import asyncio
from typing import Any


class Upgrade:
    """The head of an upgrade request, after which the parser has stopped."""

    __slots__ = ("_first", "_headers", "is_tunnel")

    def __init__(self, parser: Any, target: bytes, headers: dict[bytes, bytes]) -> None:
        method, version = parser.get_method(), parser.get_http_version().encode()
        self._first = b"%b %b HTTP/%b\r\n" % (method, target, version)
        self._headers = headers
        self.is_tunnel = method == b"CONNECT"

    @property
    def is_websocket(self) -> bool:
        """Whether the client asks for WebSocket."""
        return self._headers.get(b"upgrade", b"").lower() == b"websocket"

    def hand_over(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol, rest: memoryview
    ) -> None:
        """Hand the connection to `protocol`, which reads the request again, then what followed it."""
        protocol.connection_made(transport)
        transport.set_protocol(protocol)
        protocol.data_received(self._rewritten(self._headers) + rest)

    def declined(self) -> bytes:
        """Return the head without the upgrade, for a protocol that is not spoken here, such as h2c."""
        headers = {name: value for name, value in self._headers.items() if name != b"upgrade"}
        connection = headers.pop(b"connection", b"").lower().split(b",")
        kept = [token for token in connection if token.strip() != b"upgrade"]
        if kept:
            headers[b"connection"] = b",".join(kept)
        return self._rewritten(headers)

    def _rewritten(self, headers: dict[bytes, bytes]) -> bytes:
        lines = [b"%b: %b\r\n" % header for header in headers.items()]
        return b"%b%b\r\n" % (self._first, b"".join(lines))
