"""The wires a server can be served on: each a record of its options, by name or as an object.

What a wire does is in its listener, which is loaded when the wire is used.
"""

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

    from mcpearl.auth.server.protection import Auth
    from mcpearl.server.server import Server


class Listener(Protocol):
    """One wire being served. It is started once, and drained if it was started."""

    async def start(self) -> None:
        """Begin to take clients in; raises when that cannot be done."""
        ...

    async def ended(self) -> None:
        """Wait until the wire ends by itself, which most never do."""
        ...

    def stop_accepting(self) -> None:
        """Take no new clients in."""
        ...

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, cancel the rest, and release everything."""
        ...


class Wire(Protocol):
    """What `Server.run` and `Server.serve` take beside names."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire."""
        ...


class Stdio(Struct, frozen=True, kw_only=True):
    """The process's own standard input and output. Its end is the end of the server."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire."""
        return _StdioListener(server)


class Http:
    """Streamable HTTP, at `http://127.0.0.1:8000/mcp` unless told otherwise.

    >>> Http(host="0.0.0.0", port=8080, path="/mcp", websocket="/ws")

    It takes what `HttpListener` takes, and the options of `Server.asgi`. `server="granian"` has
    granian answer instead of uvicorn, which can HTTP/2.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire."""
        options = dict(self.options)
        if options.pop("workers", 1) != 1:
            raise ValueError("`workers` are processes: serve with `app.run`, and on HTTP alone")
        match options.pop("server", "uvicorn"):
            case "uvicorn":
                from mcpearl.server.serving.http import HttpListener

                return HttpListener(server, **options)
            case "granian":
                from mcpearl.server.serving.granian import GranianListener

                return GranianListener(server, **options)
            case other:
                raise ValueError(f"unknown HTTP server {other!r}; there is 'uvicorn', 'granian'")


class Bounds(Struct, frozen=True, kw_only=True):
    """What the clients of one wire may take together, and how long each may take it."""

    max_connections: int = 10_000
    """Clients at once; one more is told so and closed."""
    handshake_timeout: float = 30.0
    """Seconds until a client must have sent its first message."""
    idle_timeout: float | None = None
    """Seconds a client without a call in flight may be silent; None for ever."""
    stall_timeout: float = 60.0
    """Seconds a client may take nothing of what waits for it."""


class Tcp(Bounds, frozen=True, kw_only=True):
    """A port. With a certificate it is TLS, with a client CA the clients need certificates too.

    >>> Tcp(host="0.0.0.0", port=9000, certificate="server.pem", key="server.key")
    """

    host: str = "127.0.0.1"
    port: int = 9000
    certificate: "str | Path | None" = None
    key: "str | Path | None" = None
    client_ca: "str | Path | None" = None
    """Who signs clients' certificates; the subject of a client's becomes its principal."""
    framing: str = "detect"
    """How messages are told apart: as each client does it, or `newline` or `content-length`."""
    reuse_port: bool = False
    """Whether several processes may take this port and share its clients."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire."""
        from mcpearl.server.serving.sockets import tcp_listener

        return tcp_listener(server, self)


class Unix(Bounds, frozen=True, kw_only=True):
    """A Unix socket, for its owner alone.

    >>> Unix(path="/run/user/1000/weather.sock")
    """

    path: "str | Path"
    framing: str = "detect"
    """How messages are told apart: as each client does it, or `newline` or `content-length`."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire."""
        from mcpearl.server.serving.sockets import unix_listener

        return unix_listener(server, self)


class WebSocket(Bounds, frozen=True, kw_only=True):
    """WebSocket on a port of its own; see `Http(websocket=…)` for a path of the HTTP server.

    >>> WebSocket(port=9001, allowed_origins=frozenset({"https://app.example"}))
    """

    host: str = "127.0.0.1"
    port: int = 9001
    path: str = "/"
    certificate: "str | Path | None" = None
    key: "str | Path | None" = None
    client_ca: "str | Path | None" = None
    """Who signs clients' certificates; the subject of a client's becomes its principal."""
    allowed_hosts: frozenset[str] | None = None
    """Hosts a request may name; on a local port only the local ones."""
    allowed_origins: frozenset[str] | None = None
    """Origins whose pages may connect; else only local ones."""
    auth: "Auth | None" = None
    """Who may come, as for HTTP; else what the server's own `auth` says."""
    ping_interval: float | None = 30.0
    """Seconds of silence after which a client is pinged; None for never."""
    ping_timeout: float = 10.0
    """Seconds it then has to say anything."""
    reuse_port: bool = False
    """Whether several processes may take this port and share its clients."""

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire."""
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
    """Make objects of names. Options are those of the one wire that is named."""
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
        await self._connection.closed.wait()

    def stop_accepting(self) -> None:
        pass

    async def drain(self, grace: float) -> None:
        try:
            await self._connection.drain(grace)
            await self._connection.closed.wait()
        finally:
            await self._transport.close()
