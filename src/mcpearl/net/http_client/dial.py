"""Makes connections to one origin: directly or through a proxy, in HTTP/1.1 or HTTP/2.

The client offers versions of HTTP in the TLS handshake, and the server chooses one.
"""

import asyncio
import base64
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote

from mcpearl.net.http_client.exchange import MAX_HEAD, Header
from mcpearl.net.http_client.http1 import Http1Connection, format_head
from mcpearl.net.http_client.urls import host_of, origin_of, port_of, split_address
from mcpearl.net.tls import Tls, client_context

if TYPE_CHECKING:
    from mcpearl.net.http_client.http2 import Http2Connection
    from mcpearl.net.http_client.pool import ConnectionPool

_OFFERED = {None: ["h2", "http/1.1"], False: ["http/1.1"], True: ["h2"]}


def tls_context(tls: Tls | ssl.SSLContext | None, http2: bool | None = None) -> ssl.SSLContext:
    """Make the TLS context of a client.

    Args:
        tls: Certificates to trust and to present; a context is used as it is.
        http2: False offers HTTP/1.1 only, True HTTP/2 only, None both.
    """
    return client_context(tls, _OFFERED[http2])


class Dialer:
    """Makes connections to the origin of `url`.

    Args:
        url: Any address of the origin.
        tls: The context for `https://`.
        proxy: The `http://` address of a proxy; by default the environment's, if it names one.
        http2: Whether an HTTP/1.1 connection is refused.
    """

    def __init__(
        self, url: str, tls: ssl.SSLContext | None, proxy: str | None, http2: bool
    ) -> None:
        self._url = split_address(url)
        self._tls = tls if self._url.scheme == "https" else None
        if http2 and self._tls is None:
            raise ValueError(f"HTTP/2 needs an https:// address, not {url!r}")
        self._only_http2 = http2
        self._proxy = _proxy_for(self._url, proxy)
        self._pinned: list[str] = []
        self.origin = origin_of(self._url)
        """Scheme, host and port, the port only when it is not the default."""

    @property
    def proxied(self) -> bool:
        """Whether a proxy makes the connections."""
        return self._proxy is not None

    @property
    def negotiates(self) -> bool:
        """Whether connections may turn out to be HTTP/2."""
        return self._tls is not None

    def pin(self, addresses: list[str]) -> None:
        """Connect to these addresses, in turn, instead of looking the name up."""
        self._pinned = addresses

    async def dial(self, pool: "ConnectionPool") -> "Http1Connection | Http2Connection":
        """Make one connection for `pool`; raises `OSError` or `ExchangeFailed` when it cannot."""
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            return await self._dial_secure(loop, self._tls, pool)
        connection = Http1Connection(pool, self._authority)
        if self._proxy is None:
            await self._connect(loop, connection, None)
        else:
            await loop.create_connection(lambda: connection, *_address(self._proxy))
            connection.through_proxy(self.origin, _proxy_headers(self._proxy))
        return connection

    @property
    def _authority(self) -> str:
        return self.origin.partition("://")[2]

    async def _connect(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        tls: ssl.SSLContext | None,
    ) -> Any:
        """Connect to the origin itself: by name, or to the first pinned address that answers."""
        host, port = _address(self._url)
        name = None if tls is None else host  # certificates name the host, not its address
        *others, last = self._pinned or [host]
        for address in others:
            try:
                return await _connection(loop, protocol, address, port, tls, name)
            except OSError:
                continue
        return await _connection(loop, protocol, last, port, tls, name)

    async def _dial_secure(
        self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext, pool: "ConnectionPool"
    ) -> "Http1Connection | Http2Connection":
        negotiation = _Negotiation()
        if self._proxy is None:
            transport = await self._connect(loop, negotiation, tls)
        else:
            transport = await self._tunnel(loop, self._proxy, tls, negotiation)
        with _aborting(transport):
            agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
            if agreed != "h2":
                if self._only_http2:
                    raise OSError("the server does not speak HTTP/2")
                connection = Http1Connection(pool, self._authority)
                negotiation.hand_over(transport, connection)
                return connection
            from mcpearl.net.http_client.http2 import Http2Connection

            shared = Http2Connection(pool, self._authority)
            negotiation.hand_over(transport, shared)
            await shared.introduced()
            return shared

    async def _tunnel(
        self,
        loop: asyncio.AbstractEventLoop,
        proxy: SplitResult,
        tls: ssl.SSLContext,
        protocol: asyncio.Protocol,
    ) -> Any:
        tunnel = _Tunnel(loop.create_future())
        transport, _ = await loop.create_connection(lambda: tunnel, *_address(proxy))
        with _aborting(transport):
            address = f"{host_of(self._url)}:{port_of(self._url)}"
            headers = [("Host", address), *_proxy_headers(proxy)]
            transport.write(format_head("CONNECT", address, headers))
            await tunnel.opened
            return await loop.start_tls(
                transport, protocol, tls, server_hostname=self._url.hostname
            )


async def _connection(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.Protocol,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    name: str | None,
) -> Any:
    transport, _ = await loop.create_connection(
        lambda: protocol, host, port, ssl=tls, server_hostname=name
    )
    return transport


class _Negotiation(asyncio.Protocol):
    """The protocol of a connection until it is known which version of HTTP is spoken on it."""

    def __init__(self) -> None:
        self._early: list[bytes] = []  # an HTTP/2 server speaks first
        self._lost: tuple[Exception | None] | None = None

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = (exc,)

    def hand_over(self, transport: Any, connection: asyncio.Protocol) -> None:
        """Continue with the protocol of the chosen version."""
        transport.set_protocol(connection)
        connection.connection_made(transport)
        for data in self._early:
            connection.data_received(data)
        if self._lost is not None:
            connection.connection_lost(self._lost[0])


class _Tunnel(asyncio.Protocol):
    """The protocol of a connection to a proxy until the proxy has connected to the server."""

    def __init__(self, opened: "asyncio.Future[None]") -> None:
        self.opened = opened
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if (b"\r\n\r\n" in self._head or len(self._head) > MAX_HEAD) and not self.opened.done():
            line = self._head.split(b"\r\n", 1)[0].decode("latin-1")[:128]
            if line[9:12].startswith("2"):
                self.opened.set_result(None)
            else:
                self.opened.set_exception(OSError(f"the proxy refused: {line}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(OSError("the proxy closed the connection"))


@contextmanager
def _aborting(transport: asyncio.BaseTransport) -> Iterator[None]:
    """Close the connection when the block raises."""
    try:
        yield
    except BaseException:
        transport.abort()  # type: ignore[attr-defined]
        raise


def _address(url: SplitResult) -> tuple[str, int]:
    assert url.hostname is not None
    return url.hostname, port_of(url)


def _proxy_for(url: SplitResult, given: str | None) -> SplitResult | None:
    """Return the proxy to use: the given one, else the environment's, except for loopback."""
    if given is not None:
        proxy = split_address(given)
        if proxy.scheme != "http":
            raise ValueError(f"a proxy has to be an http:// address, not {given!r}")
        return proxy
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    import urllib.request

    host = url.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return None
    found = urllib.request.getproxies()
    proxy_url = found.get(url.scheme) or found.get("all")
    if not proxy_url or urllib.request.proxy_bypass(f"{host}:{port_of(url)}"):
        return None
    return _proxy_for(url, proxy_url if "://" in proxy_url else f"http://{proxy_url}")


def _proxy_headers(proxy: SplitResult) -> list[Header]:
    if proxy.username is None:
        return []
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [("Proxy-Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")]
