"""Serving over HTTP: the server behind an ASGI endpoint, and uvicorn in front of it."""

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mcpearl.auth.principal import ANONYMOUS, Principal
from mcpearl.net.http_server.timeouts import STALLED
from mcpearl.net.ports import bind_port
from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import McpError
from mcpearl.server.connection import ServerConnection, SoloConnection
from mcpearl.server.serving.clients import Clients
from mcpearl.server.serving.wires import Bounds
from mcpearl.transports.http_server.endpoint import Endpoint
from mcpearl.transports.http_server.gate import Gate
from mcpearl.transports.http_server.header_check import peek
from mcpearl.transports.http_server.origin import Location, hosts_of
from mcpearl.transports.mirrored_headers import PARAM, ToolHeaders, annotated
from mcpearl.transports.transport import Transport
from mcpearl.transports.websocket.asgi import AsgiWebSockets
from mcpearl.types.jsonrpc import INTERNAL_ERROR
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.auth.server.protection import Auth
    from mcpearl.server.server import Server
    from mcpearl.transports.http_server.siblings import Siblings


class HttpHost:
    """What an endpoint asks of a server."""

    nobody = ANONYMOUS  # anybody can be at the other end of HTTP: who was not asked has no scopes

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.limits = server.core.limits
        self._headers = ToolHeaders()
        self._seen: dict[str, tuple[Tool, list[str]]] = {}  # with the headers its schema names

    def converse(self, transport: Transport, principal: Principal | None) -> ServerConnection:
        """Make the server's side of one client."""
        return ServerConnection(self._server.core, transport, principal or self.nobody)

    def converse_alone(self) -> SoloConnection:
        """Make the server's side of clients that have no session."""
        return SoloConnection(self._server.core)

    def needs(self, message: Envelope, principal: Principal) -> frozenset[str]:
        """The scopes a message needs, when its principal does not have them all."""
        if (
            not self._server.core.dispatcher.scoped
            or message.method is UNSET
            or message.params is UNSET
        ):
            return frozenset()
        params = peek(message)
        name = params.uri if params.name is UNSET else params.name
        if not isinstance(name, str):
            return frozenset()
        needed = self._server.core.dispatcher.scopes_of(message.method, name)
        return frozenset() if needed <= principal.scopes else needed

    def time_left(self, principal: Principal) -> float | None:
        """How many seconds a principal is good for; None for ever."""
        return principal.time_left

    def tool_headers(self, name: str, arguments: Raw | UnsetType) -> list[tuple[str, str | None]]:
        """The headers of a call of this tool with the values they must have; None for no header."""
        definition = self._server.core.dispatcher.tool(name)
        if definition is None:
            return []
        seen, headers = self._seen.get(name, (None, []))
        if seen is not definition:
            learnt = self._headers.learn([definition])
            names = annotated(definition.input_schema).values() if learnt else ()
            headers = [PARAM + name for name in names]
            self._seen[name] = definition, headers
        if not headers:
            return []
        try:
            given = {} if arguments is UNSET else msgspec.json.decode(arguments)
            values = dict(self._headers.of(name, given))
        except codec.UNREADABLE:
            return []
        return [(header, values.get(header)) for header in headers]


def make_endpoint(
    server: "Server",
    *,
    auth: "Auth | None" = None,
    path: str = "/mcp",
    websocket: str | None = None,
    **options: Any,
) -> Endpoint:
    """Give the ASGI application of a server; its lifespan holds the server up."""
    host = HttpHost(server)
    gate = make_gate(server, auth, path, websocket)
    if websocket is not None:
        place = _place(websocket, options)
        options["websockets"] = AsgiWebSockets(place, host.converse, server.core.limits, gate)
    return Endpoint(host, lifespan=server.running, path=path, gate=gate, **options)


def make_gate(
    server: "Server", auth: "Auth | None", path: str, websocket: str | None = None
) -> Gate | None:
    """Give who asks the clients of a place: as it says itself, else as the server says."""
    auth = server.auth if auth is None else auth
    if auth is None:
        return None
    from mcpearl.auth.server.protection import gate_of

    return gate_of(
        auth, path, server.core.dispatcher.all_scopes, () if websocket is None else (websocket,)
    )


def _place(path: str, options: dict[str, Any]) -> Location:
    return Location(path, options.get("allowed_hosts"), options.get("allowed_origins"))


class HttpListener:
    """Serves on uvicorn: host, port, TLS, and the options of `Endpoint`.

    With `websocket` there is a WebSocket at that path, beside the endpoint. A worker is given the
    port that is `listening` already, and its `siblings`.
    """

    def __init__(
        self,
        server: "Server",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        certificate: str | None = None,
        key: str | None = None,
        client_ca: str | None = None,
        reuse_port: bool = False,
        max_connections: int = 100_000,
        auth: "Auth | None" = None,
        path: str = "/mcp",
        websocket: str | None = None,
        listening: socket.socket | None = None,
        siblings: "Siblings | None" = None,
        **options: Any,
    ) -> None:
        import uvicorn

        from mcpearl.net.http_server.batching import IterationBatch
        from mcpearl.net.http_server.http1_connection import Http1Connection

        class Connection(Http1Connection):
            round = IterationBatch()
            error_body = staticmethod(_internal_error)
            stall_timeout = options.get("stall_timeout", STALLED)

        options.setdefault("allowed_hosts", hosts_of(host))
        self._place = host, port, reuse_port
        self._connection = Connection
        self._listening = listening
        self._siblings = siblings
        gate = make_gate(server, auth, path, websocket)
        self._endpoint = make_endpoint(server, auth=gate, path=path, siblings=siblings, **options)
        self._sockets: list[socket.socket] = []
        self._door: asyncio.Server | None = None  # for other workers
        self._clients = Clients(server, Bounds(), ANONYMOUS)  # on WebSockets
        accept: Any = "none"
        if websocket is not None:
            from mcpearl.transports.websocket.frames import Beat
            from mcpearl.transports.websocket.server import acceptor

            place = _place(websocket, options)
            accept = acceptor(self._clients, place, gate, Beat())
        self._front = uvicorn.Server(
            uvicorn.Config(
                self._endpoint,
                http=Connection,
                ws=accept,
                loop="none",
                lifespan="on",
                log_level="warning",
                access_log=False,
                limit_concurrency=max_connections + 1,  # uvicorn counts the one that asks, too
                ssl_certfile=certificate,
                ssl_keyfile=key,
                ssl_ca_certs=client_ca,
                # Not required: who has none is told so in words, by whoever guards the endpoint.
                ssl_cert_reqs=ssl.CERT_NONE if client_ca is None else ssl.CERT_OPTIONAL,
                timeout_graceful_shutdown=max(1, int(server.core.grace)),
                proxy_headers=False,
                server_header=False,
                date_header=False,
            )
        )

    async def start(self) -> None:
        """Open the port, and begin to answer."""
        host, port, reuse_port = self._place
        self._sockets = [self._listening or bind_port(host, port, reuse_port=reuse_port)]
        config = self._front.config
        config.load()
        self._front.lifespan = config.lifespan_class(config)
        await self._front.startup(sockets=self._sockets)
        if self._siblings is not None:
            await self._open_door(self._siblings)

    async def _open_door(self, siblings: "Siblings") -> None:
        """Take in what lands at other workers but belongs here."""
        from mcpearl.transports.http_server.siblings import Door

        config, state = self._front.config, self._front.server_state
        door = Door(self._endpoint)

        def connected() -> asyncio.Protocol:
            protocol = self._connection(config, state, {})
            protocol.endpoint = door
            return protocol

        path = siblings.paths[siblings.number]
        path.unlink(missing_ok=True)  # of the worker that had this number before
        self._door = await asyncio.get_running_loop().create_unix_server(connected, str(path))

    async def ended(self) -> None:
        """Wait for ever: requests may always come."""
        await asyncio.Event().wait()

    def stop_accepting(self) -> None:
        """Close the port; and first what would stay open for ever, since uvicorn waits for it."""
        for front in self._front.servers:
            front.close()
        self._endpoint.end_streams()

    async def drain(self, grace: float) -> None:
        """Let requests finish, as long as the configuration says."""
        if self._door is not None:
            self._door.close()
        await asyncio.gather(
            self._front.shutdown(sockets=self._sockets), self._clients.drain(grace)
        )


def _internal_error(reason: str) -> bytes:
    """Return the body of an error that no endpoint made."""
    return codec.encode_error(None, McpError(INTERNAL_ERROR, reason))
