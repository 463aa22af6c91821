"""The clients of one socket wire: how many there may be, how long they may be silent, how they leave.

`Clients` owns the set of open sockets. One timer checks all of them.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from mcpearl.auth.principal import Principal
from mcpearl.net.ports import host_of
from mcpearl.runtime.budget import NoRoom
from mcpearl.runtime.keeper import Keeper
from mcpearl.runtime.limited_log import LimitedLog
from mcpearl.runtime.tree import Node
from mcpearl.server.connection import ServerConnection
from mcpearl.server.serving.wires import Bounds
from mcpearl.transports.socket import SocketServer

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")
lives = logging.getLogger("mcpearl.sessions")
_MAX_REFUSED = 100  # clients being sent a refusal; more are closed without one
_LOOKS = 4  # checks within the shortest timeout


class _Stay:
    """One client's stay."""

    __slots__ = ("connection", "expires_at")

    def __init__(self) -> None:
        self.connection: ServerConnection | None = None  # set once the client may send messages
        self.expires_at: float | None = None  # when the client's token expires


class Clients:
    """The `Acceptor` of one wire."""

    def __init__(self, server: "Server", bounds: Bounds, anonymous: Principal | None) -> None:
        self._server = server
        self._anonymous = anonymous  # principal of clients that did not authenticate
        self.limits = server.core.limits
        self.turns = server.turns
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._stays: dict[SocketServer, _Stay] = {}
        more = "%d more clients connected or left within a second"
        self._lives = LimitedLog(lives, logging.INFO, more)
        self._refused: set[SocketServer] = set()
        self._draining = False
        timeouts = (bounds.handshake_timeout, bounds.idle_timeout)
        self._interval = min(seconds for seconds in timeouts if seconds is not None) / _LOOKS
        self._keeper = Keeper("the clients of a wire", self._check_all)

    def __len__(self) -> int:
        return len(self._stays)

    def node(self) -> Node:
        """Return the part of the tree that checks the clients."""
        return self._keeper.node()

    # Coming

    def enter(self, transport: SocketServer) -> bool:
        """Count a client; refuse it if there are too many, or during shutdown."""
        if self._draining:
            return self._refuse(transport, "The server is shutting down")
        if len(self._stays) >= self._bounds.max_connections:
            most = self._bounds.max_connections
            reason = f"The server has as many clients as it takes, {most}; try again later"
            self._server.core.bounded("max_connections", reason)
            return self._refuse(transport, reason)
        account = self._server.core.budget.account(host_of(transport.wire))
        try:
            transport.charge(account, self._bounds.stall_timeout)
        except NoRoom as error:
            return self._refuse(transport, str(error))
        self._stays[transport] = _Stay()
        self._keeper.wake(self._interval)
        return True

    def _refuse(self, transport: SocketServer, reason: str) -> bool:
        logger.warning("a client was refused: %s", reason)
        if len(self._refused) >= _MAX_REFUSED:
            transport.wire.abort()
        else:
            self._refused.add(transport)
            transport.refuse(reason)
        return False

    def receive(self, transport: SocketServer, peer: Principal | str | None) -> ServerConnection:
        """Make the server's side of a client; `peer` is its principal, or its certificate's subject."""
        principal = Principal(peer) if isinstance(peer, str) else peer or self._anonymous
        connection = ServerConnection(self._server.core, transport, principal, transport.account)
        stay = self._stays[transport]
        stay.connection = connection
        self._lives.note("client connected from %s", _address(transport))
        left = None if principal is None else principal.time_left
        stay.expires_at = None if left is None else self._loop.time() + left
        return connection

    def leave(self, transport: SocketServer) -> None:
        """Forget a client."""
        stay = self._stays.pop(transport, None)
        if stay is not None and stay.connection is not None:
            self._lives.note("client left from %s", _address(transport))
        self._refused.discard(transport)

    # Staying

    def _check_all(self) -> float | None:
        """Check every client: the token, the first message, the silence."""
        now = self._loop.time()
        for transport, stay in list(self._stays.items()):
            if not transport.finished:
                self._check(transport, stay, now)
        return self._interval if self._stays else None

    def _check(self, transport: SocketServer, stay: _Stay, now: float) -> None:
        bounds = self._bounds
        if stay.expires_at is not None and now >= stay.expires_at:
            transport.refuse("The access token has expired; connect with a new one")
        elif not transport.has_spoken:
            if now >= transport.opened_at + bounds.handshake_timeout:
                transport.refuse(f"No message came within {bounds.handshake_timeout:g} s")
        elif not transport.paused and self._is_idle(transport, stay, now):
            transport.refuse(f"No message came for {bounds.idle_timeout:g} s")

    def _is_idle(self, transport: SocketServer, stay: _Stay, now: float) -> bool:
        patience = self._bounds.idle_timeout
        if patience is None or now < transport.spoke_at + patience:
            return False
        return stay.connection is None or not stay.connection.end.in_flight

    # Leaving

    async def drain(self, grace: float) -> None:
        """Refuse new clients, let calls finish within `grace` seconds, then close every socket."""
        self._draining = True
        work = []
        for transport, stay in list(self._stays.items()):
            if stay.connection is None:
                transport.refuse("The server is shutting down")
            else:
                work.append(stay.connection.drain(grace))
        await asyncio.gather(*work)
        await asyncio.gather(*(transport.until_gone(grace) for transport in list(self._stays)))
        self._keeper.stop()


def _address(transport: SocketServer) -> str:
    return transport.peer_address or "this machine"
