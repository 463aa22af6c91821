"""The wires a server can be served on. A wire is a kind of transport with its options, as a record.

What a wire does is in its listener, which is loaded when the wire is used.
"""

from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from mcpearl.transports.http_server.settings import EndpointSettings

if TYPE_CHECKING:
    from mcpearl.auth.server.protection import Auth
    from mcpearl.server.server import Server
else:
    Auth = Server = Any  # loaded where they are made, not where they are named


class Listener(Protocol):
    """One wire being served. It is started once, and drained if it was started."""

    async def start(self) -> None:
        """Begin to accept clients; raises if that is not possible."""
        ...

    async def ended(self) -> None:
        """Wait until the wire ends by itself; most never do."""
        ...

    def stop_accepting(self) -> None:
        """Stop accepting clients."""
        ...

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, cancel the rest, and release everything."""
        ...


class Wire(Protocol):
    """What `Server.run` and `Server.serve` take beside names of wires."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire.

        Args:
            server: The server to be served.
        """
        ...


class Stdio(Struct, frozen=True, kw_only=True):
    """The process's own standard input and output. Its end is the end of the server."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire.

        Args:
            server: The server to be served.
        """
        return _StdioListener(server)


class Http(EndpointSettings, frozen=True, kw_only=True):
    """Streamable HTTP, by default at `http://127.0.0.1:8000/mcp`.

    >>> Http(host="0.0.0.0", port=8080, path="/mcp", websocket="/ws")
    """

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8000
    """The port to listen on."""
    certificate: str | PathLike[str] | None = None
    """The server's certificate, in PEM; with one, the port speaks TLS."""
    key: str | PathLike[str] | None = None
    """The certificate's private key, if it is not in the certificate's file."""
    client_ca: str | PathLike[str] | None = None
    """The authority that signs clients' certificates. A client may come without one; what it may do
    then is up to `auth`."""
    auth: "Auth | None" = None
    """Which clients may come: verifiers, a `ResourceServer` or a gate; by default the server's `auth`."""
    websocket: str | None = None
    """A path at which there is a WebSocket too."""
    max_connections: int = 100_000
    """Open HTTP connections; one more gets a 503."""
    max_websockets: int = 10_000
    """Open WebSockets beside the endpoint; one more is refused."""
    reuse_port: bool = False
    """Whether several processes may open this port and share its clients."""
    workers: int = 1
    """Processes that share the port; only with `app.run`, and as the only wire."""
    server: Literal["mcpearl", "granian"] = "mcpearl"
    """What serves the connections: mcpearl itself, or granian, which speaks HTTP/2 too."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire.

        Args:
            server: The server to be served.
        """
        if self.workers != 1:
            raise ValueError("`workers` are processes: serve with `app.run`, and on HTTP alone")
        if self.server == "granian":
            from mcpearl.server.serving.granian import GranianListener

            return GranianListener(server, self)
        if self.server != "mcpearl":
            raise ValueError(f"unknown HTTP server {self.server!r}; there is 'mcpearl', 'granian'")
        from mcpearl.server.serving.http import HttpListener

        return HttpListener(server, self)


class Bounds(Struct, frozen=True, kw_only=True):
    """What the clients of one wire may take, together and each."""

    max_connections: int = 10_000
    """Clients at once; one more gets an error, then its connection is closed."""
    handshake_timeout: float = 30.0
    """Seconds in which a client must send its first message."""
    idle_timeout: float | None = None
    """Seconds a client without a call in flight may be silent; None for any time."""
    stall_timeout: float = 60.0
    """Seconds in which a client must read some of what it was sent."""


class Tcp(Bounds, frozen=True, kw_only=True):
    """A TCP port; with a certificate TLS, with `client_ca` clients need certificates too.

    >>> Tcp(host="0.0.0.0", port=9000, certificate="server.pem", key="server.key")
    """

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 9000
    """The port to listen on."""
    certificate: str | PathLike[str] | None = None
    """The server's certificate, in PEM; with one, the port speaks TLS."""
    key: str | PathLike[str] | None = None
    """The certificate's private key, if it is not in the certificate's file."""
    client_ca: str | PathLike[str] | None = None
    """The authority that signs clients' certificates; a certificate's subject is the principal."""
    framing: str = "detect"
    """How messages are framed: `newline`, `content-length`, or `detect` to do as each client does."""
    reuse_port: bool = False
    """Whether several processes may open this port and share its clients."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire.

        Args:
            server: The server to be served.
        """
        from mcpearl.server.serving.sockets import tcp_listener

        return tcp_listener(server, self)


class Unix(Bounds, frozen=True, kw_only=True):
    """A Unix socket, which only its owner may connect to.

    >>> Unix(path="/run/user/1000/weather.sock")
    """

    path: str | PathLike[str]
    """The path of the socket."""
    framing: str = "detect"
    """How messages are framed: `newline`, `content-length`, or `detect` to do as each client does."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire.

        Args:
            server: The server to be served.
        """
        from mcpearl.server.serving.sockets import unix_listener

        return unix_listener(server, self)


class WebSocket(Bounds, frozen=True, kw_only=True):
    """WebSocket on a port of its own; see `Http(websocket=…)` for a path of the HTTP server.

    >>> WebSocket(port=9001, allowed_origins=frozenset({"https://app.example"}))
    """

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 9001
    """The port to listen on."""
    path: str = "/"
    """The path of the WebSocket."""
    certificate: str | PathLike[str] | None = None
    """The server's certificate, in PEM; with one, the port speaks TLS."""
    key: str | PathLike[str] | None = None
    """The certificate's private key, if it is not in the certificate's file."""
    client_ca: str | PathLike[str] | None = None
    """The authority that signs clients' certificates; a certificate's subject is the principal."""
    allowed_hosts: frozenset[str] | None = None
    """Hosts a request may name, without ports, `*` for any. By default only local ones on a local
    address, and any elsewhere."""
    allowed_origins: frozenset[str] | None = None
    """Origins whose pages may connect, `*` for all; None for local ones."""
    auth: "Auth | None" = None
    """Which clients may come, as for `Http`; by default the server's `auth`."""
    ping_interval: float | None = 30.0
    """Seconds of silence after which a client is pinged; None for never."""
    ping_timeout: float = 10.0
    """Seconds a pinged client has to send anything."""
    reuse_port: bool = False
    """Whether several processes may open this port and share its clients."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire.

        Args:
            server: The server to be served.
        """
        from mcpearl.server.serving.sockets import websocket_listener

        return websocket_listener(server, self)


WIRES: dict[str, type[Any]] = {
    "stdio": Stdio,
    "http": Http,
    "tcp": Tcp,
    "unix": Unix,
    "ws": WebSocket,
}


def named(wires: tuple[str | Wire, ...], options: dict[str, Any]) -> list[Wire]:
    """Make wires of names. Options belong to the one wire that is named."""
    if options and (len(wires) > 1 or not isinstance(wires[0], str)):
        raise TypeError(
            f"options ({', '.join(options)}) go with one wire by name; "
            "write several as `Http(port=8000), Tcp(port=9000)`"
        )
    return [_named(wire, options) if isinstance(wire, str) else wire for wire in wires]


def _named(name: str, options: dict[str, Any]) -> Wire:
    if name not in WIRES:
        known = ", ".join(f"{wire!r}" for wire in WIRES)
        raise ValueError(f"unknown transport {name!r}; there is {known}")
    try:
        wire: Wire = WIRES[name](**options)
    except TypeError as error:
        raise TypeError(f"cannot serve on {name!r}: {error}") from None
    return wire


class _StdioListener:
    def __init__(self, server: "Server") -> None:
        self._server = server

    async def start(self) -> None:
        from mcpearl.transports.stdio import StdioTransport

        self._transport = StdioTransport(self._server.core.limits)
        self._connection = await self._server.connect(self._transport)

    async def ended(self) -> None:
        await self._connection.wait_closed()

    def stop_accepting(self) -> None:
        pass

    async def drain(self, grace: float) -> None:
        try:
            await self._connection.drain(grace)
            await self._connection.wait_closed()
        finally:
            await self._transport.close()
