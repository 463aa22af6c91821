"""Serving on sockets: a listener is a port and the clients it has accepted."""

from functools import partial
from typing import TYPE_CHECKING

from mcpearl.auth.principal import ANONYMOUS
from mcpearl.net.ports import MakeProtocol, TcpPort, UnixPort
from mcpearl.net.tls import server_context
from mcpearl.protocol.framing import framer_named
from mcpearl.runtime.tree import Node
from mcpearl.server.serving.clients import Clients
from mcpearl.server.serving.wires import Tcp, Unix, WebSocket, served_at
from mcpearl.transports.socket import SocketServer

if TYPE_CHECKING:
    from mcpearl.server.server import Server


class SocketListener:
    """The `Listener` of a wire whose clients connect to a socket."""

    def __init__(
        self,
        port: TcpPort | UnixPort,
        clients: Clients,
        make: MakeProtocol,
        path: str | None = None,
    ) -> None:
        self._port = port
        self._clients = clients
        self._make = make
        self._path = path  # of a WebSocket

    @property
    def address(self) -> str:
        """The address a client connects to."""
        if isinstance(self._port, UnixPort):
            return str(self._port)
        schemes = ("tcp", "tls") if self._path is None else ("ws", "wss")
        return f"{schemes[self._port.speaks_tls]}://{self._port.place}{self._path or ''}"

    def nodes(self) -> tuple[Node, ...]:
        """Return the part that checks its clients."""
        return (self._clients.node(),)

    def describe(self) -> str:
        """Return the line that says where the server is and how to connect."""
        return served_at(self.address)

    async def start(self) -> None:
        """Open the port."""
        await self._port.open(self._make)

    async def ended(self) -> None:
        """Wait until clients can no longer connect."""
        await self._port.ended()

    def stop_accepting(self) -> None:
        """Close the port."""
        self._port.close()

    async def drain(self, grace: float) -> None:
        """Let the connected clients finish."""
        await self._clients.drain(grace)


def tcp_listener(server: "Server", wire: Tcp) -> SocketListener:
    """Return the listener of a TCP port."""
    if server.auth is not None and wire.client_ca is None:
        raise ValueError(
            "this server has `auth`, but clients cannot send a token over TCP; serve it over HTTP or "
            "WebSocket, or ask for certificates with `client_ca`"
        )
    clients = Clients(server, wire, ANONYMOUS)
    return SocketListener(_port(wire), clients, _byte_stream(clients, wire))


def unix_listener(server: "Server", wire: Unix) -> SocketListener:
    """Return the listener of a Unix socket; its clients act for its owner, and may use everything."""
    clients = Clients(server, wire, None)
    return SocketListener(UnixPort(wire.path), clients, _byte_stream(clients, wire))


def websocket_listener(server: "Server", wire: WebSocket) -> SocketListener:
    """Return the listener of a WebSocket with a port of its own."""
    from mcpearl.server.serving.http import make_gate
    from mcpearl.transports.http_server.origin import ServedLocation, hosts_of
    from mcpearl.transports.websocket.frames import Beat
    from mcpearl.transports.websocket.server import acceptor

    clients = Clients(server, wire, ANONYMOUS)
    gate = make_gate(server, wire.auth, wire.path)
    hosts = hosts_of(wire.host) if wire.allowed_hosts is None else wire.allowed_hosts
    location = ServedLocation(wire.path, hosts, wire.allowed_origins)
    beat = Beat(wire.ping_interval, wire.ping_timeout)
    accept = acceptor(clients, location, gate, beat)
    return SocketListener(_port(wire), clients, accept, wire.path)


def _port(wire: Tcp | WebSocket) -> TcpPort:
    tls = server_context(wire.certificate, wire.key, wire.client_ca)
    return TcpPort(
        wire.host,
        int(wire.port),
        tls,
        handshake_timeout=wire.handshake_timeout,
        reuse_port=wire.reuse_port,
    )


def _byte_stream(clients: Clients, wire: Tcp | Unix) -> MakeProtocol:
    framer_named(wire.framing, 0)  # raises for an unknown name now, not at the first client
    return partial(SocketServer, clients, wire.framing)
