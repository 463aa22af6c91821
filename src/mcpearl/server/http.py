"""Serving over HTTP: the server behind an ASGI endpoint, and uvicorn in front of it."""

import asyncio
import socket
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.protocol import codec
from mcpearl.server.connection import ServerConnection, SoloConnection
from mcpearl.server.run import stop_signals
from mcpearl.transports.http_endpoint import Endpoint, Nowhere
from mcpearl.transports.http_headers import PARAM, ToolHeaders, annotated
from mcpearl.transports.http_origin import hosts_of
from mcpearl.transports.transport import Transport
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.server.server import Server


class HttpHost:
    """What an endpoint asks of a server."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.limits = server.limits
        self._headers = ToolHeaders()
        self._seen: dict[str, tuple[Tool, list[str]]] = {}  # with the headers its schema names

    def converse(self, transport: Transport, principal: Any) -> ServerConnection:
        """Make the server's side of one client."""
        connection = ServerConnection(self._server, transport, principal)
        self._server.connections.add(connection)
        return connection

    def converse_alone(self) -> SoloConnection:
        """Make the server's side of clients that have no session."""
        connection = SoloConnection(self._server, Nowhere())
        self._server.connections.add(connection)
        return connection

    def tool_headers(self, name: str, arguments: bytes) -> list[tuple[str, str | None]]:
        """The headers of a call of this tool with the values they must have; None for no header."""
        definition = self._server.tool_definition(name)
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
            values = dict(self._headers.of(name, msgspec.json.decode(arguments)))
        except codec.UNREADABLE:
            return []
        return [(header, values.get(header)) for header in headers]


def make_endpoint(server: "Server", **options: Any) -> Endpoint:
    """Give the ASGI application of a server; its lifespan holds the server up."""
    return Endpoint(HttpHost(server), lifespan=server.running, **options)


async def serve_http(
    server: "Server",
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    certificate: str | None = None,
    key: str | None = None,
    **options: Any,
) -> None:
    """Serve on uvicorn until a signal comes."""
    import uvicorn

    from mcpearl.server.http_guard import GuardedProtocol

    options.setdefault("allowed_hosts", hosts_of(host))
    endpoint = make_endpoint(server, **options)
    config = uvicorn.Config(
        endpoint,
        host=host,
        port=port,
        http=GuardedProtocol,
        ws="none",
        loop="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=max(1, int(server.grace)),
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    front = uvicorn.Server(config)
    front.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    listening = _listen(host, port)
    with stop_signals() as stop:
        serving = asyncio.ensure_future(front.serve(sockets=[listening]))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            endpoint.end_streams()  # first, since uvicorn waits for open responses
            front.should_exit = True
            await serving


def _listen(host: str, port: int) -> socket.socket:
    """Open the port, or say which one could not be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise OSError(
            error.errno, f"cannot listen on {host} port {port}: {error.strerror}; choose another"
        ) from None
    return listening
