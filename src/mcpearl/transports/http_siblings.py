"""Several processes behind one port: whose session is whose, and the way to its owner.

A connection lands at any of them, but a legacy session lives in one. Its id begins with the number of
its owner, and a request that lands elsewhere is passed on over a socket only these processes share.
"""

import asyncio
from pathlib import Path
from typing import Any

from mcpearl.transports.http1_connection import Http1Connection
from mcpearl.transports.http_connection import HttpConnection, WireError
from mcpearl.transports.http_gate import Scope, busy
from mcpearl.transports.http_response import EVENTS, Receive, Send, disconnected
from mcpearl.transports.http_wire import HttpWire

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host"}
)


class Siblings:
    """The processes, by number. Each has a socket at its path."""

    def __init__(self, number: int, paths: list[Path]) -> None:
        self.number = number
        self.paths = paths
        self._wires: dict[int, HttpWire] = {}

    @property
    def prefix(self) -> str:
        """How ids of sessions begin that live in this process."""
        return f"{self.number}."

    def owner_of(self, session: str) -> int | None:
        """The number of the other process a session lives in; None when it would be this one."""
        number, dot, _ = session.partition(".")
        if not dot or not (number.isascii() and number.isdigit()) or len(number) > 4:
            return None
        owner = int(number)
        return owner if owner != self.number and owner < len(self.paths) else None

    async def pass_on(
        self, owner: int, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Let the owner answer a request, and give its response as it comes."""
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name.decode("latin-1") not in _HOP_BY_HOP and name != b"content-length"
        ]
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        query = scope.get("query_string", b"").decode("latin-1")
        target = scope["path"] + (f"?{query}" if query else "")
        wire = self._wires.get(owner)
        if wire is None:
            wire = self._wires[owner] = _SocketWire(self.paths[owner], host.decode("latin-1"))
        try:
            connection = await wire.acquire()
        except WireError as error:
            raise busy(f"The process that has this session: {error.reason}", 1) from None
        connection.send(scope["method"], target, headers, body)
        copying = asyncio.ensure_future(_copy(connection, send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait((copying, gone), return_when=asyncio.FIRST_COMPLETED)
            if copying.done():
                copying.result()
        except WireError as error:
            raise busy(f"The process that has this session: {error.reason}", 1) from None
        finally:
            gone.cancel()
            copying.cancel()
            connection.release()

    def close(self) -> None:
        """Close the ways to the others."""
        for wire in self._wires.values():
            wire.close()


async def _copy(connection: HttpConnection, send: Send) -> None:
    await connection.answered()
    headers = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in connection.headers.items()
        if name not in _HOP_BY_HOP
    ]
    await send({"type": "http.response.start", "status": connection.status, "headers": headers})
    if (b"content-type", EVENTS) in headers:
        # The head leaves with the first part, and there may be nothing to say for long.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
    try:
        while chunk := await connection.chunk():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except WireError:
        return  # the rest is lost; a response that stays incomplete says so
    await send({"type": "http.response.body", "body": b""})


class _SocketWire(HttpWire):
    """The way to a process at a Unix socket."""

    def __init__(self, path: Path, host: str) -> None:
        super().__init__("http://localhost")
        self._path = path
        self._host = host

    async def _open(self) -> Any:
        connection = Http1Connection(self, self._host)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: connection, str(self._path))
        return connection
