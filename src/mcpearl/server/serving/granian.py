"""Serves the endpoint with granian, for HTTP/2: `app.run("http", server="granian")`.

Granian runs on the loop of the server, with its network in threads of its own. It bounds the size of a
request's head and, in HTTP/1.1, its time. It does not bound how long a client may leave a response
unread or a new connection unused; the bounds of the endpoint (bodies, requests, sessions, streams that
are not read) apply here too.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mcpearl.net.http_server.asgi_request import Receive, Scope, Send
from mcpearl.net.ports import TcpPort, bind_port
from mcpearl.net.tls import server_context
from mcpearl.runtime.tree import Node
from mcpearl.server.serving.http import asgi_endpoint, described, make_console
from mcpearl.server.serving.wires import Http
from mcpearl.transports.http_server.endpoint import Endpoint
from mcpearl.transports.http_server.origin import hosts_of

if TYPE_CHECKING:
    from mcpearl.server.server import Server

_MAX_HEAD = 64 * 1024  # bytes of a request beside its body
_HEAD_TIMEOUT = 30_000  # milliseconds for the head of a request, in HTTP/1.1
_PING_EVERY = 30_000  # milliseconds, to notice a client that is gone, in HTTP/2
_MAX_CONNECTIONS = 65_536  # at once; requests are bounded by the endpoint
_MAX_STREAMS = 1000  # of one client in HTTP/2, event streams included
_LOOK = 0.01  # seconds between looks whether the port is open
_UNWINDING = 1.0  # seconds for the answers of cancelled requests to leave
_LOGGING = {"incremental": True, "handlers": {}, "loggers": {}}  # keeps the program's settings


class GranianListener:
    """Serves on granian."""

    def __init__(self, server: "Server", http: Http) -> None:
        # It can ask for certificates, but does not pass them on with a request.
        if http.client_ca is not None or _knows_by_certificate(http.auth or server.auth):
            raise ValueError(
                "granian does not pass clients' certificates on, so `client_ca` and "
                "`ClientCertificates` do not work with it; leave out `server`"
            )
        server_context(http.certificate, http.key, None)  # raises for a file that cannot be used
        if http.allowed_hosts is None:
            http = replace(http, allowed_hosts=hosts_of(http.host))
        self._http = http
        self._endpoint = asgi_endpoint(server, http)
        self._console = make_console(server, http)
        self._up = AsyncExitStack()
        self._requests = _GranianRequests(self._endpoint)
        # Granian itself would share any port with other processes.
        with bind_port(http.host, int(http.port), reuse_port=http.reuse_port) as free:
            self._port = free.getsockname()[1]
        self._front = _granian(self._requests, http, self._port)

    def nodes(self) -> tuple[Node, ...]:
        """Return the parts of the endpoint."""
        return self._endpoint.nodes()

    @property
    def address(self) -> str:
        """The address of the endpoint."""
        return self._url("http", self._http.path)

    def _url(self, scheme: str, path: str) -> str:
        http = self._http
        place = TcpPort(http.host, self._port).place
        return f"{scheme}{'' if http.certificate is None else 's'}://{place}{path}"

    def describe(self) -> str:
        """Return the line that says where the server is and how to connect."""
        return described(self._http, self._url, self._console)

    async def start(self) -> None:
        """Open the port and begin to answer."""
        await self._up.enter_async_context(self._endpoint.running())
        self._serving = asyncio.ensure_future(self._front.serve())
        while not self._serving.done():  # granian opens the port in a thread, and does not say when
            with suppress(OSError):
                _, writer = await asyncio.open_connection(self._http.host, self._port)
                writer.close()
                return
            await asyncio.sleep(_LOOK)

    async def ended(self) -> None:
        """Wait for the end of granian, which raises its error if there is one."""
        await asyncio.shield(self._serving)

    def stop_accepting(self) -> None:
        """Close the port, and end the streams that would stay open forever."""
        self._endpoint.end_streams()
        self._front.stop()

    async def drain(self, grace: float) -> None:
        """Let requests finish within `grace` seconds, then cancel the rest."""
        await asyncio.wait((self._serving,), timeout=grace)
        self._requests.cancel()
        await asyncio.wait((self._serving,), timeout=_UNWINDING)
        if not self._serving.done():
            self._serving.cancel()
        await asyncio.wait((self._serving,))
        await self._up.aclose()


def _knows_by_certificate(auth: Any) -> bool:
    if auth is None:
        return False
    from mcpearl.auth.server.client_certificates import ClientCertificates

    return isinstance(auth, ClientCertificates)


class _GranianRequests:
    """The endpoint, and the requests under way: granian itself cannot cancel one."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._under_way: set[asyncio.Task[Any] | None] = set()
        self._cancelled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        self._under_way.add(task)
        try:
            await self._endpoint(scope, receive, send)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
        finally:
            self._under_way.discard(task)

    def cancel(self) -> None:
        """Cancel the requests that did not end in time."""
        self._cancelled = True
        for task in self._under_way:
            if task is not None:
                task.cancel()


def _granian(app: Any, http: Http, port: int) -> Any:
    key = http.key or http.certificate
    try:
        from granian.constants import Interfaces, SSLProtocols
        from granian.http import HTTP1Settings, HTTP2Settings
        from granian.log import LogLevels
        from granian.server.embed import Server as Granian
    except ImportError:
        raise RuntimeError(
            'server="granian" needs the package granian; install "mcpearl[granian]"'
        ) from None
    return Granian(
        app,
        http.host,
        port,
        interface=Interfaces.ASGINL,
        websockets=http.websocket is not None,
        backlog=1024,
        backpressure=_MAX_CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=_HEAD_TIMEOUT, max_buffer_size=_MAX_HEAD),
        http2_settings=HTTP2Settings(
            max_headers_size=_MAX_HEAD,
            max_concurrent_streams=_MAX_STREAMS,
            keep_alive_interval=_PING_EVERY,
        ),
        log_level=LogLevels.error,
        log_dictconfig=_LOGGING,
        ssl_cert=None if http.certificate is None else Path(http.certificate),
        ssl_key=None if key is None else Path(key),
        ssl_protocol_min=SSLProtocols.tls12,
    )
