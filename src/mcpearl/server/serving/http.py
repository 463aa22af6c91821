"""Serving over HTTP: the endpoint of a server, and the port it is served on."""

import asyncio
import logging
import socket
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Unpack

from msgspec import Struct
from msgspec.structs import asdict, replace

from mcpearl.auth.principal import ANONYMOUS
from mcpearl.net.http_server.front import HttpFront
from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.net.http_server.noted_requests import NotedHttp1Request
from mcpearl.net.http_server.request import Serving
from mcpearl.net.http_server.timeouts import HEAD_TIMEOUT
from mcpearl.net.ports import TcpPort, UnixPort
from mcpearl.net.tls import server_context
from mcpearl.protocol import codec
from mcpearl.protocol.errors import McpError
from mcpearl.runtime import doors
from mcpearl.runtime.arguments import did_you_mean
from mcpearl.runtime.tree import Node
from mcpearl.server.serving import environment
from mcpearl.server.serving.clients import Clients
from mcpearl.server.serving.health import Health
from mcpearl.server.serving.http_host import HttpHost
from mcpearl.server.serving.options import AsgiOptions
from mcpearl.server.serving.wires import Bounds, Http, served_at
from mcpearl.transports.http_server.endpoint import Endpoint
from mcpearl.transports.http_server.gate import Gate
from mcpearl.transports.http_server.origin import ServedLocation, hosts_of
from mcpearl.transports.http_server.pages import PageRoute, Pages, Site, make_route
from mcpearl.transports.http_server.settings import EndpointSettings
from mcpearl.transports.http_server.sse_2024 import MESSAGES, STREAM
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.auth.server.protection import Auth
    from mcpearl.server.server import Server
    from mcpearl.stores.shared import ProcessRelay
    from mcpearl.transports.http_server.siblings import Siblings
    from mcpearl.transports.http_server.turning_away import TurningAway

logger = logging.getLogger("mcpearl.server")


def make_endpoint(server: "Server", **options: Unpack[AsgiOptions]) -> Endpoint:
    """Return the ASGI application of a server; its lifespan keeps the server running."""
    foreign = options.keys() - AsgiOptions.__annotations__.keys()
    if foreign:
        known = AsgiOptions.__annotations__.keys()
        wrong = sorted(foreign)[0]
        raise TypeError(
            f"{wrong!r} is not an option of an ASGI application{did_you_mean(wrong, known)}"
        )
    names = AsgiOptions.__annotations__
    http = Http(**{**environment.options(names), **options})
    return asgi_endpoint(server, http, lifespan=server.running)


def asgi_endpoint(
    server: "Server",
    http: Http,
    lifespan: "Callable[[], AbstractAsyncContextManager[None]] | None" = None,
) -> Endpoint:
    """Return the ASGI application of a server, with the options of `http` that concern it.

    Args:
        server: The server.
        http: The options.
        lifespan: Entered while the endpoint runs; None where the server is kept running by others.
    """
    gate = make_gate(server, http.auth, http.path, http.websocket)
    host = HttpHost(server)
    websockets = None
    if http.websocket is not None:
        from mcpearl.transports.websocket.asgi import AsgiWebSockets

        location = ServedLocation(http.websocket, http.allowed_hosts, http.allowed_origins)
        websockets = AsgiWebSockets(
            location,
            host.converse,
            server.core.limits,
            host.budget,
            gate,
            http.max_websockets,
            http.stall_timeout,
        )
    console = make_console(server, http)
    endpoint = Endpoint(
        host,
        _settings(server, http),
        gate=gate,
        lifespan=lifespan,
        websockets=websockets,
        pages=make_pages(server, http, console),
        relay=_relay(server, http),
    )
    server.core.roster.sessions.add(endpoint)
    if console is not None:
        console.watch(endpoint.usage)
    return endpoint


def _settings(server: "Server", http: Http) -> EndpointSettings:
    """Return the options that are the endpoint's, with the stores of the server's deployment."""
    given = asdict(http)
    settings = EndpointSettings(
        **{name: given[name] for name in EndpointSettings.__struct_fields__}
    )
    if not _shares_sessions(server, http):
        return settings
    assert server.shared is not None
    return replace(settings, session_store=server.shared.sessions, event_store=server.shared.events)


def _shares_sessions(server: "Server", http: Http) -> bool:
    """Whether sessions are those of the deployment; an endpoint may have its own stores."""
    own = http.session_store is not None or http.event_store is not None
    return server.shared is not None and not own


def _relay(server: "Server", http: Http) -> "ProcessRelay | None":
    return server.shared.relay if server.shared and _shares_sessions(server, http) else None


def make_pages(server: "Server", http: Http, console: Site | None) -> Pages | None:
    """Return the pages that an endpoint serves beside MCP; None if there are none."""
    if http.health is None and http.metrics is None and console is None and not server.web.routes:
        return None
    routes: Mapping[str, PageRoute] = server.web.routes
    if http.metrics is not None:
        if http.metrics in routes:
            raise ValueError(f"{http.metrics!r} is the path of the metrics, and of a route too")
        page = make_route(http.metrics, ("GET",), server.measure().page)
        routes = ChainMap({http.metrics: page}, server.web.routes)
    for path in (http.path, *((STREAM, MESSAGES) if http.http_sse else ())):
        if path in routes:
            raise ValueError(f"{path!r} is the path of the MCP endpoint, and of a page too")
    return Pages(routes, server.in_thread, Health(server, http.health).answer, console)


def make_console(server: "Server", http: Http, siblings: "Siblings | None" = None) -> Site | None:
    """Return the console of a wire; None if it has none."""
    if not http.console:
        return None
    site: Site = doors.behind("server.console")(server, http, siblings)
    return site


def make_gate(
    server: "Server", auth: "Auth | None", path: str, websocket: str | None = None
) -> Gate | None:
    """Return the gate of an endpoint: its own `auth`, else the server's; None without either."""
    auth = server.auth if auth is None else auth
    if auth is None:
        return None
    from mcpearl.auth.server.protection import gate_of

    also = () if websocket is None else (websocket,)
    scopes = server.core.dispatcher.all_scopes
    if server.shared is None:
        return gate_of(auth, path, scopes, also)
    # Every machine has the same keys, so that a nonce of one is accepted by all.
    return gate_of(
        auth, path, scopes, also, server.shared.proofs, lambda: server.core.state_keys or ()
    )


class HttpListener:
    """Serves an endpoint on a port that mcpearl opens itself.

    Args:
        server: The server behind the endpoint.
        http: The options.
        listening: The bound socket of the port, which workers share.
        siblings: The other workers.
    """

    def __init__(
        self,
        server: "Server",
        http: Http,
        listening: socket.socket | None = None,
        siblings: "Siblings | None" = None,
    ) -> None:
        hosts = hosts_of(http.host) if http.allowed_hosts is None else http.allowed_hosts
        settings = replace(_settings(server, http), allowed_hosts=hosts)
        gate = make_gate(server, http.auth, http.path, http.websocket)
        self._http = http
        self._server = server
        self._console = make_console(server, http, siblings)
        self._endpoint = Endpoint(
            HttpHost(server),
            settings,
            gate=gate,
            siblings=siblings,
            pages=make_pages(server, http, self._console),
            relay=_relay(server, http),
        )
        server.core.roster.sessions.add(self._endpoint)
        self._websockets = Clients(server, Bounds(max_connections=http.max_websockets), ANONYMOUS)
        self._up = AsyncExitStack()
        self._port = self._make_port(listening)
        self._front = self._make_front(
            self._endpoint.entrance,
            self._make_websocket(hosts, gate),
            NotedHttp1Request if http.access_log else Http1Request,
        )
        if self._console is not None:
            self._console.watch(self._usage)
        self._door: UnixPort | None = None  # where the other workers pass requests on
        self._door_front: HttpFront | None = None
        if siblings is not None:
            from mcpearl.transports.http_server.siblings import Door

            self._door = UnixPort(siblings.paths[siblings.number])
            self._door_front = self._make_front(Door(self._endpoint), None)

    def _make_port(self, listening: socket.socket | None) -> TcpPort:
        http = self._http
        # A client without a certificate gets an answer that says what is missing.
        tls = server_context(http.certificate, http.key, http.client_ca, optional=True)
        return TcpPort(
            http.host,
            int(http.port),
            tls,
            handshake_timeout=HEAD_TIMEOUT,
            reuse_port=http.reuse_port,
            listening=listening,
        )

    def _make_front(
        self,
        endpoint: Serving,
        websocket: Callable[[], asyncio.Protocol] | None,
        request_type: type[Http1Request] = Http1Request,
    ) -> HttpFront:
        # What comes through the door of a worker was counted by the worker that a client sent it to.
        is_public = endpoint is self._endpoint.entrance
        measuring = self._server.measuring if is_public else None
        front = HttpFront(
            endpoint,
            _internal_error,
            max_connections=self._http.max_connections,
            stall_timeout=self._http.stall_timeout,
            websocket=websocket,
            budget=self._server.core.budget,
            reached=self._server.core.bounded,
            congestion=self._server.turns.congestion,
            turn_away=self._turn_away() if is_public else None,
            request_type=request_type,
            refused=self._endpoint.refusals.note_unread if is_public else None,
        )
        if measuring is not None:
            measuring.metrics.add_bytes("http", lambda: (front.received, front.sent))
        return front

    def _turn_away(self) -> "TurningAway | None":
        refusal = self._server.core.refusal
        if refusal is None:
            return None
        from mcpearl.transports.http_server.turning_away import TurningAway

        return TurningAway(refusal)

    def _make_websocket(
        self, hosts: Collection[str] | None, gate: Gate | None
    ) -> Callable[[], asyncio.Protocol] | None:
        if self._http.websocket is None:
            return None
        from mcpearl.transports.websocket.frames import Beat
        from mcpearl.transports.websocket.server import acceptor

        location = ServedLocation(self._http.websocket, hosts, self._http.allowed_origins)
        return acceptor(self._websockets, location, gate, Beat())

    @property
    def address(self) -> str:
        """The address of the endpoint."""
        return self._url("http", self._http.path)

    def _url(self, scheme: str, path: str) -> str:
        return f"{scheme}{'s' * self._port.speaks_tls}://{self._port.place}{path}"

    def _usage(self) -> dict[str, tuple[int, int]]:
        connections = len(self._front.connections), self._http.max_connections
        return {"max_connections": connections, **self._endpoint.usage()}

    def describe(self) -> str | None:
        """Return the line that says where the server is; None for a worker, whose parent logs it."""
        return None if self._door is not None else described(self._http, self._url, self._console)

    async def start(self) -> None:
        """Open the port and begin to answer."""
        await self._up.enter_async_context(self._endpoint.running())
        self._up.callback(
            self._server.core.add_counters(lambda: {"connections_http": len(self._front)})
        )
        try:
            await self._port.open(self._front.connect)
            if self._door is not None and self._door_front is not None:
                await self._door.open(self._door_front.connect)
            if self._console is not None:
                await self._up.enter_async_context(self._console.running())
        except BaseException:
            self._port.close()
            if self._door is not None:
                self._door.close()
            await self._up.aclose()
            raise

    def nodes(self) -> tuple[Node, ...]:
        """Return the parts that check sessions, streams and WebSockets."""
        return (*self._endpoint.nodes(), self._websockets.node())

    async def ended(self) -> None:
        """Wait until clients can no longer connect."""
        await self._port.ended()

    def stop_accepting(self) -> None:
        """Close the port, and end the streams that would stay open forever."""
        self._port.close()
        self._endpoint.end_streams()

    async def drain(self, grace: float) -> None:
        """Let requests finish within `grace` seconds, cancel the rest, and release everything."""
        work = [self._front.drain(grace), self._websockets.drain(grace)]
        if self._door is not None and self._door_front is not None:
            self._door.close()
            work.append(self._door_front.drain(grace))
        try:
            await asyncio.gather(*work)
        finally:
            await self._up.aclose()


def described(http: Http, url: Callable[[str, str], str], console: Site | None = None) -> str:
    """Return the line that says where an HTTP server is; `url` makes an address of scheme and path."""
    addresses = [url("http", http.path)]
    if http.http_sse:
        addresses.append(url("http", STREAM))
    if http.websocket is not None:
        addresses.append(url("ws", http.websocket))
    line = served_at(*addresses)
    return line if console is None else f"{line}; console: {url('http', console.address)}"


class WorkerHttp(Struct):
    """`Http` as one worker serves it: the port is open already, and there are others."""

    http: Http
    listening: socket.socket
    siblings: "Siblings"

    @property
    def name(self) -> str:
        """The name in the tree: that of a server without workers."""
        return f"http {self.http.host}:{self.listening.getsockname()[1]}"

    @property
    def drain_delay(self) -> float:
        """Seconds between being not ready and the end of the port."""
        return self.http.drain_delay

    def listener(self, server: "Server") -> HttpListener:
        """Return the listener of this wire."""
        return HttpListener(server, self.http, self.listening, self.siblings)


def _internal_error(reason: str) -> bytes:
    """Return the body of an error response that no endpoint made."""
    return codec.encode_error(None, McpError(INTERNAL_ERROR, reason))
