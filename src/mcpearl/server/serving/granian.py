"""Granian in front of the endpoint, for who wants HTTP/2: `app.run("http", server="granian")`.

It runs on the loop of the server, its network in threads of its own. Of what `http_protocol` sees to for
uvicorn it bounds the head of a request in size and, in HTTP/1.1, in time. It knows no bound on how
long a client may leave an answer unread or a new connection unused; what the endpoint bounds (bodies,
requests, sessions, streams that are not read) holds here as there.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpearl.net.http_server.request import Receive, Scope, Send
from mcpearl.net.ports import bind_port
from mcpearl.server.serving.http import make_endpoint
from mcpearl.transports.http_server.endpoint import Endpoint
from mcpearl.transports.http_server.origin import hosts_of

if TYPE_CHECKING:
    from mcpearl.server.server import Server

_MAX_HEAD = 64 * 1024  # bytes of a request beside its body
_HEAD_TIMEOUT = 30_000  # milliseconds for the head of a request, in HTTP/1.1
_PING_EVERY = 30_000  # milliseconds, to notice a client that is gone, in HTTP/2
_MAX_CONNECTIONS = 65_536  # at once; how many requests, the endpoint says
_MAX_STREAMS = 1000  # of one client in HTTP/2, since streams of events are among them
_UNWINDING = 1.0  # seconds for answers of what was cancelled to leave
_LOGGING = {"incremental": True, "handlers": {}, "loggers": {}}  # the program's, left as it is


class GranianListener:
    """Serves on granian: host, port, TLS, and the options of `Server.asgi`."""

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
        **options: Any,
    ) -> None:
        # It can ask for certificates, but does not say which one a request came with.
        if client_ca is not None or _knows_by_certificate(options.get("auth") or server.auth):
            raise ValueError(
                "granian does not tell who a client's certificate belongs to, so `client_ca` and "
                '`ClientCertificates` need server="uvicorn"'
            )
        options.setdefault("allowed_hosts", hosts_of(host))
        self._place = host, port, reuse_port
        self._endpoint = make_endpoint(server, **options)
        self._up = AsyncExitStack()
        self._requests = _Requests(self._endpoint)
        tls = certificate, key or certificate
        self._front = _granian(self._requests, host, port, tls, "websocket" in options)

    async def start(self) -> None:
        """Open the port, and begin to answer."""
        host, port, reuse_port = self._place
        bind_port(host, port, reuse_port=reuse_port).close()  # granian would share any port
        await self._up.enter_async_context(self._endpoint.running())
        self._serving = asyncio.ensure_future(self._front.serve())
        await asyncio.sleep(0)  # the port is open

    async def ended(self) -> None:
        """Wait for the end of granian, which is an error if there is one."""
        await asyncio.shield(self._serving)

    def stop_accepting(self) -> None:
        """Close the port; and first what would stay open for ever, since granian waits for it."""
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


class _Requests:
    """The endpoint, and what is under way there: granian itself has no way to end a request."""

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
        """End what did not end in time."""
        self._cancelled = True
        for task in self._under_way:
            if task is not None:
                task.cancel()


def _granian(
    app: Any, host: str, port: int, tls: tuple[str | None, str | None], websockets: bool
) -> Any:
    certificate, key = tls
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
        host,
        port,
        interface=Interfaces.ASGINL,
        websockets=websockets,
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
        ssl_cert=None if certificate is None else Path(certificate),
        ssl_key=None if key is None else Path(key),
        ssl_protocol_min=SSLProtocols.tls12,
    )
