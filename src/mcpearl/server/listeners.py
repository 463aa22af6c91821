"""Serving on sockets: each listener is an address to take clients in at, and the clients taken in."""

import asyncio
import logging
from typing import TYPE_CHECKING

from mcpearl.server.clients import Clients
from mcpearl.server.wires import Tcp, Unix
from mcpearl.transports.addresses import TcpAddress, UnixAddress
from mcpearl.transports.socket import SocketServer
from mcpearl.transports.tls import server_context

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")


class _SocketListener:
    """What the listeners on sockets share."""

    def __init__(self, server: "Server", wire: Tcp | Unix) -> None:
        self._clients = Clients(server, wire)
        self._framing = wire.framing
        self._front: asyncio.Server | None = None

    def _client(self) -> SocketServer:
        return SocketServer(self._clients, self._framing)

    async def ended(self) -> None:
        """Wait for ever: clients may always come."""
        await asyncio.Event().wait()

    def stop_accepting(self) -> None:
        """Close the door."""
        if self._front is not None:
            self._front.close()

    async def drain(self, grace: float) -> None:
        """Let those inside finish."""
        await self._clients.drain(grace)


class TcpListener(_SocketListener):
    """A port."""

    def __init__(self, server: "Server", wire: Tcp) -> None:
        super().__init__(server, wire)
        context = server_context(wire.certificate, wire.key, wire.client_ca)
        self._address = TcpAddress(wire.host, wire.port, context)
        self._reuse_port = wire.reuse_port

    async def start(self) -> None:
        """Open the port."""
        self._front = await self._address.listen(self._client, reuse_port=self._reuse_port)
        logger.info("listening on %s", self._address)


class UnixListener(_SocketListener):
    """A Unix socket. Its file goes when nobody is taken in any more."""

    def __init__(self, server: "Server", wire: Unix) -> None:
        super().__init__(server, wire)
        self._address = UnixAddress(wire.path)
        self._file: tuple[int, int] | None = None

    async def start(self) -> None:
        """Make the socket."""
        self._front = await self._address.listen(self._client)
        self._file = self._address.identity()
        logger.info("listening on %s", self._address)

    def stop_accepting(self) -> None:
        """Close the door, and take the sign down if it is still ours."""
        super().stop_accepting()
        if self._file is not None and self._address.identity() == self._file:
            self._address.path.unlink(missing_ok=True)
