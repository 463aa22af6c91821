"""The least a Python process does between two sockets: ``python floor_relay.py <to port> <port>``.

Bytes go from each client to a connection of its own to the server, and back, as they are. What this adds
to a call is mostly waking one process more, twice; a gateway cannot add less.
"""

import asyncio
import sys

import uvloop


class Relay(asyncio.Protocol):
    """One side of a client's way to the server."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Relay | None = None
        self.early = b""  # what came before the other side was connected

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Accepted(Relay):
    """The client's side, which connects to the server."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, other = await loop.create_connection(Relay, "127.0.0.1", int(sys.argv[1]))
        self.other, other.other = other, self
        if self.early and other.transport is not None:
            other.transport.write(self.early)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Accepted, "127.0.0.1", int(sys.argv[2]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
