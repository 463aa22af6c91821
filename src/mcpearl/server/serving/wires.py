"""The wires with addresses. A wire is a kind of transport with its options, as a record.

The behaviour of a wire is in its listener, which is loaded when the wire is used.
"""

from collections.abc import Collection
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct

from mcpearl.runtime.arguments import Unusable
from mcpearl.server.serving.wire import Listener, Stdio
from mcpearl.transports.http_server.settings import EndpointSettings, check_allowed

if TYPE_CHECKING:
    from mcpearl.auth.server.protection import Auth
    from mcpearl.server.server import Server
else:
    Auth = Server = Any  # loaded where they are made, not where they are named


class ConsoleOptions(Struct, frozen=True, kw_only=True):
    """What the console of a server shows and does: `app.run("http", console=ConsoleOptions(…))`."""

    path: str = "/console"
    """The path of the console."""
    payloads: bool = False
    """Show arguments and results of all clients' calls, not only their names and times."""
    operable: bool = True
    """Let the page stop calls, end sessions and restart parts of the server."""
    key: str | None = None
    """The secret that a page has to send; by default a random one at every start. It is part of
    the address that the server logs."""

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or not self.path.rstrip("/"):
            raise ValueError(f"the path of a console begins with `/`, unlike {self.path!r}")


class Http(EndpointSettings, frozen=True, kw_only=True):
    """Streamable HTTP, by default at `http://127.0.0.1:8000/mcp`.

    >>> Http(host="0.0.0.0", port=8080, path="/mcp", websocket="/ws")
    """

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int | str = 8000
    """The port to listen on, as a number or text; 0 for any that is free."""
    certificate: str | PathLike[str] | None = None
    """The server's certificate, in PEM; with one, the port speaks TLS."""
    key: str | PathLike[str] | None = None
    """The certificate's private key, if it is not in the certificate's file."""
    client_ca: str | PathLike[str] | None = None
    """The authority that signs clients' certificates. A client may connect without one; `auth` decides
    what it may do then."""
    auth: "Auth | None" = None
    """Which clients may connect: verifiers, a `ResourceServer` or a gate; by default the server's."""
    websocket: str | None = None
    """The path of a WebSocket beside the endpoint; None for none."""
    max_connections: int = 100_000
    """Open HTTP connections; further ones get a 503."""
    max_websockets: int = 10_000
    """Open WebSockets beside the endpoint; further ones are refused."""
    reuse_port: bool = False
    """Whether several processes may open this port and share its clients."""
    drain_delay: float = 0.0
    """Seconds between a signal to stop, when `health` says that the server is not ready, and the end
    of the port: load balancers need them to notice."""
    workers: int = 1
    """Processes that share the port; only with `app.run`, and as the only wire."""
    server: Literal["mcpearl", "granian"] = "mcpearl"
    """What serves the connections: mcpearl itself, or granian, which speaks HTTP/2 too."""
    console: bool | ConsoleOptions = False
    """Serve a page that shows the server at work, with all its workers, and tries what it offers, at
    `/console`. On an address that other machines reach, it needs `auth`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_port(self.port)
        check_workers(self.workers)

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
            raise ValueError(f"unknown HTTP server {self.server!r}; choose 'mcpearl' or 'granian'")
        from mcpearl.server.serving.http import HttpListener

        return HttpListener(server, self)


class Bounds(Struct, frozen=True, kw_only=True):
    """Limits for the clients of one wire, all together and each."""

    drain_delay: ClassVar[float] = 0.0

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
    port: int | str = 9000
    """The port to listen on, as a number or text; 0 for any that is free."""
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

    def __post_init__(self) -> None:
        check_port(self.port)

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

    >>> WebSocket(port=9001, allowed_origins=["https://app.example"])
    """

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int | str = 9001
    """The port to listen on, as a number or text; 0 for any that is free."""
    path: str = "/"
    """The path of the WebSocket."""
    certificate: str | PathLike[str] | None = None
    """The server's certificate, in PEM; with one, the port speaks TLS."""
    key: str | PathLike[str] | None = None
    """The certificate's private key, if it is not in the certificate's file."""
    client_ca: str | PathLike[str] | None = None
    """The authority that signs clients' certificates; a certificate's subject is the principal."""
    allowed_hosts: Collection[str] | None = None
    """Hosts a request may name, as for `Http`."""
    allowed_origins: Collection[str] | None = None
    """Origins whose pages may connect, as for `Http`; None for local ones."""
    auth: "Auth | None" = None
    """Which clients may connect, as for `Http`; by default the server's `auth`."""
    ping_interval: float | None = 30.0
    """Seconds of silence after which a client is pinged; None for never."""
    ping_timeout: float = 10.0
    """Seconds a pinged client has to send anything."""
    reuse_port: bool = False
    """Whether several processes may open this port and share its clients."""

    def __post_init__(self) -> None:
        check_port(self.port)
        check_allowed(self.allowed_hosts, self.allowed_origins)

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire.

        Args:
            server: The server to be served.
        """
        from mcpearl.server.serving.sockets import websocket_listener

        return websocket_listener(server, self)


def served_at(*addresses: str) -> str:
    """Return the line that says where a server is and how to connect."""
    return f"serves at {' and '.join(addresses)}; connect with Client({addresses[0]!r})"


def check_workers(workers: object) -> None:
    """Raise `Unusable` for a value that is not a number of processes."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise Unusable(f"`workers` must be a number from 1 on, not {workers!r}")


def check_port(port: object) -> None:
    """Raise `Unusable` for a value that is not the number of a port."""
    number = int(port) if isinstance(port, str) and port.isascii() and port.isdigit() else port
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 65535:
        raise Unusable(f"`port` must be a number from 0 to 65535, not {port!r}")


BY_NAME: dict[str, type[Any]] = {
    "stdio": Stdio,
    "http": Http,
    "tcp": Tcp,
    "unix": Unix,
    "ws": WebSocket,
}
