"""The way to one origin: connections, made, kept and used again, in HTTP/1.1 or HTTP/2.

It knows nothing of MCP. What it promises above a common HTTP client: giving up an exchange reaches
the server at once, whether or not an answer has begun; and a failure says whether anything had been
sent. Nothing is sent twice, followed or unpacked on its own.
"""

import asyncio
import base64
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from mcpearl.net.http_client.exchange import MAX_HEAD, ExchangeFailed, Header, HttpExchange
from mcpearl.net.http_client.http1 import Http1Connection, format_head
from mcpearl.net.tls import Tls, client_context

if TYPE_CHECKING:
    from mcpearl.net.http_client.http2 import Http2Connection

_MAX_IDLE = 4.0  # seconds; servers commonly close after 5, and a request must not meet that
_MAX_KEPT = 32  # connections kept for later
_MAX_SHARED = 8  # connections of HTTP/2; when all their streams are taken, the next one waits
_PORTS = {"http": 80, "https": 443}
_OFFERED = {None: ["h2", "http/1.1"], False: ["http/1.1"], True: ["h2"]}
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


class ConnectionPool:
    """The way to one origin.

    >>> connection = await wire.acquire()
    >>> connection.send("POST", "/mcp", [("Accept", "application/json")], b"{}")
    >>> await connection.answered()
    >>> connection.status, await connection.chunk()
    >>> connection.release()

    Which version of HTTP is spoken was offered in `tls` and is the server's choice. With `http2`
    no other than that will do.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        connect_timeout: float = 10.0,
        http2: bool = False,
    ) -> None:
        self._url = _split(url)
        self._tls = tls if self._url.scheme == "https" else None
        if http2 and self._tls is None:
            raise ValueError(f"HTTP/2 needs an https:// address, not {url!r}")
        self._only_http2 = http2
        self._connect_timeout = connect_timeout
        self._kept: list[Http1Connection] = []  # free ones, the one used last at the end
        self._shared: list[Http2Connection] = []  # those that take new streams
        self._one_each = self._tls is None  # the server spoke HTTP/1.1, as far as is known
        self._opening: asyncio.Task[None] | None = None  # the next connection for many
        self._vacancy: asyncio.Future[None] | None = None  # of those who wait for a stream
        self._proxy = _proxy_for(self._url, proxy)
        self._pinned: list[str] = []  # addresses to connect to, instead of looking the name up
        self._closed = False

    @property
    def proxied(self) -> bool:
        """Whether a proxy makes the connections."""
        return self._proxy is not None

    def pin(self, addresses: list[str]) -> None:
        """Connect to these addresses, in turn, whatever the name may come to mean."""
        self._pinned = addresses

    @property
    def origin(self) -> str:
        """Scheme, host and port, the port only when it is not the usual one."""
        return origin_of(self._url)

    # Giving out

    async def reach(self) -> None:
        """Connect, to know that somebody is there; the connection is kept for the first exchange."""
        await self._connect()

    async def acquire(self) -> HttpExchange:
        """Give a free connection or a free stream of one, connecting where there is none."""
        while (free := self._free()) is None:
            if self._one_each:
                await self._connect()
            else:
                await self._room()
        return free

    def _free(self) -> HttpExchange | None:
        while self._kept:
            connection = self._kept.pop()
            if connection.usable(_MAX_IDLE):
                return connection
            connection.drop()
        for shared in list(self._shared):
            if not shared.usable(_MAX_IDLE):
                shared.retire()
            elif shared.has_room:
                return shared.stream()
        return None

    async def _room(self) -> None:
        """Wait until there may be a stream. Whoever comes first has one more connection made, for all.

        A server that takes no streams at all would not take them on another connection either.
        """
        more = len(self._shared) < _MAX_SHARED and all(each.max_streams for each in self._shared)
        if self._opening is None and more:
            self._opening = asyncio.ensure_future(self._connect())
            self._opening.add_done_callback(self._opened)
        if self._vacancy is None:
            self._vacancy = asyncio.get_running_loop().create_future()
        opening = self._opening
        waits: list[asyncio.Future[None]] = [self._vacancy, *([opening] if opening else [])]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if opening is not None and opening.done():
            error = None if opening.cancelled() else opening.exception()
            if isinstance(error, ExchangeFailed):
                raise ExchangeFailed(error.reason, sent=False)

    def _opened(self, opening: "asyncio.Task[None]") -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # told to everyone who waits

    # Connecting

    async def _connect(self) -> None:
        """Make one more connection, and keep it as its kind is kept."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._open()
        except TimeoutError:
            raise self._unreachable(f"no connection within {self._connect_timeout:g} s") from None
        except ExchangeFailed as error:
            raise self._unreachable(error.reason) from None
        except OSError as error:  # also TLS and name resolution
            raise self._unreachable(error.strerror or str(error) or type(error).__name__) from None
        if self._closed:
            connection.drop()
            raise self._unreachable("it was closed")
        self._one_each = isinstance(connection, Http1Connection)
        if isinstance(connection, Http1Connection):
            self._kept.append(connection)
        else:
            self._shared.append(connection)

    def _unreachable(self, reason: str) -> ExchangeFailed:
        return ExchangeFailed(f"cannot connect to {self.origin}: {reason}", sent=False)

    async def _open(self) -> "Http1Connection | Http2Connection":
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            return await self._open_secure(loop, self._tls)
        connection = Http1Connection(self, self._authority)
        if self._proxy is None:
            await self._dial(loop, connection, None)
        else:
            await loop.create_connection(lambda: connection, *_address(self._proxy))
            connection.through_proxy(self.origin, _proxy_headers(self._proxy))
        return connection

    async def _dial(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        tls: ssl.SSLContext | None,
    ) -> Any:
        """Connect to the origin itself: to its name, or to the first pinned address that answers."""
        host, port = _address(self._url)
        name = None if tls is None else host  # a certificate is for the name, not for the address
        *others, last = self._pinned or [host]
        for address in others:
            try:
                return await _connection(loop, protocol, address, port, tls, name)
            except OSError:
                continue
        return await _connection(loop, protocol, last, port, tls, name)

    @property
    def _authority(self) -> str:
        return self.origin.partition("://")[2]

    async def _open_secure(
        self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext
    ) -> "Http1Connection | Http2Connection":
        negotiation = _Negotiation()
        if self._proxy is None:
            transport = await self._dial(loop, negotiation, tls)
        else:
            transport = await self._tunnel(loop, self._proxy, tls, negotiation)
        with _aborting(transport):
            agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
            if agreed != "h2":
                if self._only_http2:
                    raise OSError("the server does not speak HTTP/2")
                connection = Http1Connection(self, self._authority)
                negotiation.hand_over(transport, connection)
                return connection
            from mcpearl.net.http_client.http2 import Http2Connection

            shared = Http2Connection(self, self._authority)
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
            address = f"{_host(self._url)}:{_address(self._url)[1]}"
            headers = [("Host", address), *_proxy_headers(proxy)]
            transport.write(format_head("CONNECT", address, headers))
            await tunnel.opened
            return await loop.start_tls(
                transport, protocol, tls, server_hostname=self._url.hostname
            )

    # Taking back

    def keep(self, connection: Http1Connection) -> None:
        """Take back a connection whose exchange is over."""
        if self._closed or len(self._kept) >= _MAX_KEPT:
            connection.drop()
        else:
            self._kept.append(connection)

    def vacant(self) -> None:
        """Note that a stream of a shared connection may be free."""
        if self._vacancy is not None:
            if not self._vacancy.done():
                self._vacancy.set_result(None)
            self._vacancy = None

    def forget(self, connection: "Http1Connection | Http2Connection") -> None:
        """Note that a connection ended, or takes nothing new."""
        known: list[Any] = self._kept if isinstance(connection, Http1Connection) else self._shared
        if connection in known:
            known.remove(connection)
            self.vacant()  # who waits may have to connect

    def close(self) -> None:
        """Close what is kept; what is in use closes when it is released."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        while self._kept:
            self._kept.pop().drop()
        for shared in list(self._shared):
            shared.retire()


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
    """Stands at a connection until it is known what is spoken there."""

    def __init__(self) -> None:
        self._early: list[bytes] = []  # a server of HTTP/2 speaks first
        self._lost: tuple[Exception | None] | None = None

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = (exc,)

    def hand_over(self, transport: Any, connection: asyncio.Protocol) -> None:
        """Let a connection go on with it."""
        transport.set_protocol(connection)
        connection.connection_made(transport)
        for data in self._early:
            connection.data_received(data)
        if self._lost is not None:
            connection.connection_lost(self._lost[0])


class _Tunnel(asyncio.Protocol):
    """Waits for a proxy to open the way to a server."""

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
    """Close a connection that came to nothing."""
    try:
        yield
    except BaseException:
        transport.abort()  # type: ignore[attr-defined]
        raise


def origin_of(url: SplitResult) -> str:
    """Scheme, host and port, the port only when it is not the usual one."""
    port = "" if url.port in (None, _PORTS.get(url.scheme)) else f":{url.port}"
    return f"{url.scheme}://{_host(url)}{port}"


def target_of(url: SplitResult) -> str:
    """Give what a request line names: path and query, with nothing in them that would end it."""
    return quote((url.path or "/") + (f"?{url.query}" if url.query else ""), safe=_VISIBLE)


def tls_context(tls: Tls | ssl.SSLContext | None, http2: bool | None = None) -> ssl.SSLContext:
    """Make what TLS needs: HTTP/2 is offered, the only offer, or none."""
    return client_context(tls, _OFFERED[http2])


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"not an http:// or https:// address: {url!r}")
    if any(character <= " " or character == "\x7f" for character in url):
        raise ValueError(f"a blank or control character in an address: {url!r}")
    return parts


def _host(url: SplitResult) -> str:
    host = (url.hostname or "").encode("idna").decode()
    return f"[{host}]" if ":" in host else host


def _address(url: SplitResult) -> tuple[str, int]:
    assert url.hostname is not None
    return url.hostname, url.port or _PORTS[url.scheme]


def _proxy_for(url: SplitResult, given: str | None) -> SplitResult | None:
    """Give the proxy to use: the one given, else what the environment says, never for loopback."""
    if given is not None:
        proxy = _split(given)
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
    if not proxy_url or urllib.request.proxy_bypass(f"{host}:{_address(url)[1]}"):
        return None
    return _proxy_for(url, proxy_url if "://" in proxy_url else f"http://{proxy_url}")


def _proxy_headers(proxy: SplitResult) -> list[Header]:
    if proxy.username is None:
        return []
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [("Proxy-Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")]
