"""Telling the other workers what changed, since a subscriber may be connected to any of them."""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from mcpearl.transports.http_server.siblings import Siblings

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")


class Relay:
    """One worker's ear and mouth: a datagram is the URI of a resource that was updated."""

    def __init__(self, server: "Server", siblings: Siblings) -> None:
        self._server = server
        places = [path.with_suffix(".relay") for path in siblings.paths]
        self._own = places.pop(siblings.number)
        self._others = [str(place) for place in places]
        self._socket: socket.socket | None = None

    def listener(self, server: "Server") -> "Relay":
        """Be served like a wire."""
        return self

    async def start(self) -> None:
        """Begin to listen, and to be told."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._own.unlink(missing_ok=True)  # of the worker that had this number before
        self._socket.bind(str(self._own))
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._hear)
        self._server.relay = self.tell

    def tell(self, uri: str) -> None:
        """Tell the others. One that is not there, or does not listen, is not waited for."""
        assert self._socket is not None
        for path in self._others:
            try:
                self._socket.sendto(uri.encode(), path)
            except OSError as error:
                logger.warning("a worker was not told of an update: %s", error)

    def _hear(self) -> None:
        assert self._socket is not None
        try:
            while True:
                uri = self._socket.recv(65536).decode(errors="replace")
                self._server.core.subscriptions.resource_updated(uri)
        except BlockingIOError:
            pass

    async def ended(self) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    def stop_accepting(self) -> None:
        """Go on until the end: those who finish may still have something to tell."""

    async def drain(self, grace: float) -> None:
        """Stop listening."""
        self._server.relay = None
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
