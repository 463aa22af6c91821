"""HTTP/1.1 for one origin: connections, kept and used again, one exchange at a time on each.

It knows nothing of MCP. What it promises above a common HTTP client: giving up an exchange closes
its connection at once, whether or not an answer has begun, so that the server notices; and a failure
says whether anything had been sent. Nothing is sent twice, followed or unpacked on its own.
"""

import asyncio
import base64
import os
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httptools

Header = tuple[str, str]

MAX_HEAD = 64 * 1024
_HIGH = 256 * 1024  # bytes of a body held for a reader that is behind; then the peer waits
_MAX_IDLE = 4.0  # seconds; servers commonly close after 5, and a request must not meet that
_MAX_KEPT = 32  # connections kept for later
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}  # seconds, tries
_PORTS = {"http": 80, "https": 443}
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


class WireError(Exception):
    """An exchange that failed below HTTP. `sent` is False when nothing of it reached the server."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class HttpWire:
    """The way to one origin.

    >>> connection = await wire.acquire()
    >>> connection.send("POST", "/mcp", [("Accept", "application/json")], b"{}")
    >>> await connection.answered()
    >>> connection.status, await connection.chunk()
    >>> connection.release()
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        connect_timeout: float = 10.0,
    ) -> None:
        self._url = _split(url)
        self._tls = tls if self._url.scheme == "https" else None
        self._connect_timeout = connect_timeout
        self._kept: list[HttpConnection] = []  # free ones, the one used last at the end
        self._proxy = _proxy_for(self._url, proxy)
        self._closed = False

    @property
    def origin(self) -> str:
        """Scheme, host and port, the port only when it is not the usual one."""
        return origin_of(self._url)

    async def acquire(self) -> "HttpConnection":
        """Give a free connection, a new one if there is none."""
        while self._kept:
            connection = self._kept.pop()
            if connection.usable(_MAX_IDLE):
                return connection
            connection.drop()
        return await self._connect()

    async def _connect(self) -> "HttpConnection":
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await self._open()
        except TimeoutError:
            reason = f"no connection within {self._connect_timeout:g} s"
        except OSError as error:  # also TLS and name resolution
            reason = error.strerror or str(error) or type(error).__name__
        raise WireError(f"cannot connect to {self.origin}: {reason}", sent=False)

    async def _open(self) -> "HttpConnection":
        loop = asyncio.get_running_loop()
        via = self._proxy or self._url
        connection = HttpConnection(self, self.origin.partition("://")[2])
        if self._proxy is not None and self._tls is not None:
            await self._tunnel(loop, connection)
        else:
            tls = self._tls if self._proxy is None else None
            await loop.create_connection(lambda: connection, *_address(via), ssl=tls)
            if self._proxy is not None:
                connection.through_proxy(self.origin, _proxy_headers(self._proxy))
        return connection

    async def _tunnel(self, loop: asyncio.AbstractEventLoop, connection: "HttpConnection") -> None:
        assert self._proxy is not None
        assert self._tls is not None
        tunnel = _Tunnel(loop.create_future())
        transport, _ = await loop.create_connection(lambda: tunnel, *_address(self._proxy))
        try:
            address = f"{_host(self._url)}:{_address(self._url)[1]}"
            headers = [("Host", address), *_proxy_headers(self._proxy)]
            transport.write(format_head("CONNECT", address, headers))
            await tunnel.opened
            secured = await loop.start_tls(
                transport, connection, self._tls, server_hostname=self._url.hostname
            )
        except BaseException:
            transport.abort()
            raise
        assert secured is not None
        connection.connection_made(secured)

    def keep(self, connection: "HttpConnection") -> None:
        """Take back a connection whose exchange is over."""
        if self._closed or len(self._kept) >= _MAX_KEPT:
            connection.drop()
        else:
            self._kept.append(connection)

    def forget(self, connection: "HttpConnection") -> None:
        """Note that a connection ended."""
        if connection in self._kept:
            self._kept.remove(connection)

    def close(self) -> None:
        """Close what is kept; what is in use closes when it is released."""
        self._closed = True
        while self._kept:
            self._kept.pop().drop()


class HttpConnection(asyncio.Protocol):
    """One connection, and on it one exchange: a request, then its answer read as it comes."""

    def __init__(self, wire: HttpWire, host: str) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._fixed: list[Header] = [("Host", host)]
        self._prefix = ""  # of every target, towards a proxy
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None  # of the one who reads
        self._chunks: deque[bytes] = deque()
        self._held = 0  # bytes in `_chunks`
        self._paused = False
        self._free_since = self._loop.time()
        self._active = False  # between `send` and `release`
        self._overhead = 0  # bytes since there last was a body: headers, before it or after
        self._headed = False  # the answer's head is whole
        self._complete = False  # and so is its body
        self._reusable = False
        self._error: WireError | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        """Of the answer, by name in lower case; of repeated ones the first."""

    def through_proxy(self, origin: str, headers: list[Header]) -> None:
        """Address everything to a proxy."""
        self._prefix = origin
        self._fixed += headers

    # Asking

    def usable(self, max_idle: float) -> bool:
        """Whether a request can be sent on it without meeting its end."""
        fresh = self._loop.time() - self._free_since < max_idle
        return fresh and self._error is None and not self._transport.is_closing()

    def send(self, method: str, target: str, headers: list[Header], body: bytes = b"") -> None:
        """Send a request."""
        self._active = True
        self._overhead = 0
        self._headed = self._complete = self._reusable = False
        self.status = 0
        self.headers = {}
        length = [("Content-Length", str(len(body)))] if body else []
        head = format_head(method, self._prefix + target, [*self._fixed, *headers, *length])
        self._transport.write(head + body)

    async def answered(self) -> None:
        """Wait for the head of the answer: `status` and `headers`."""
        while not self._headed:
            await self._more()

    async def chunk(self) -> bytes:
        """Give the next part of the body; nothing at its end."""
        while not self._chunks:
            if self._complete:
                return b""
            await self._more()
        chunk = self._chunks.popleft()
        self._held -= len(chunk)
        if self._paused and not self._chunks:
            self._paused = False
            self._transport.resume_reading()
        return chunk

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def release(self) -> None:
        """End the exchange. Where the answer is not over, the connection is cut."""
        if not self._active:
            return
        self._active = False
        self._chunks.clear()
        self._held = 0
        if self._paused or not self._reusable or self._transport.get_write_buffer_size():
            self.drop()
        else:
            self._free_since = self._loop.time()
            self._wire.keep(self)

    def drop(self) -> None:
        """Close the connection, now."""
        self._transport.abort()

    # What the loop says

    def connection_made(self, transport: Any) -> None:
        """Begin. Streams may be silent for long: the system is asked to notice a dead peer."""
        self._transport = transport
        system = transport.get_extra_info("socket")
        if system is not None:
            system.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEP_ALIVE.items():
                if hasattr(socket, name):  # not every system has them all
                    system.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if not self._active:
            self._fail("the server spoke without being asked")
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server switched to another protocol")
        except httptools.HttpParserError as error:
            self._fail(f"the server's answer is not HTTP: {str(error) or type(error).__name__}")
        if not self._complete and self._overhead > MAX_HEAD:
            self._fail(f"the server sent over {MAX_HEAD} bytes that say nothing")
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, which is also how a body without a length ends."""
        lengthless = "content-length" not in self.headers and (
            "transfer-encoding" not in self.headers
        )
        if self._headed and lengthless and exc is None and self._error is None:
            self._complete = True
        what = "its answer was complete" if self._headed else "it answered"
        why = f" ({exc})" if exc is not None else ""
        self._fail(f"the server closed the connection before {what}{why}")
        self._wire.forget(self)

    def _fail(self, reason: str) -> None:
        self._reusable = False
        if self._error is None:
            self._error = WireError(reason, sent=True)
        self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the parser says

    def on_message_begin(self) -> None:
        """Two answers to one request are one too many."""
        if self._complete:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header. Those after a body are of no use here."""
        if not self._headed:
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Note the head of the answer, unless it only announces the answer."""
        status = self._parser.get_status_code()
        if self._complete:
            return
        if status < 200:
            self.headers = {}
            return
        self.status = status
        self._headed = True

    def on_body(self, body: bytes) -> None:
        """Hold a part of the body; a peer ahead of its reader has to wait."""
        if self._complete or not self._active:
            return
        self._overhead = 0
        self._chunks.append(body)
        self._held += len(body)
        if self._held > _HIGH and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """Note the end of the answer."""
        if self._headed and not self._complete:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()


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


def format_head(method: str, target: str, headers: Iterable[Header]) -> bytes:
    """Give the bytes before a body. Nothing in a value can end its header."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    head = "\r\n".join([*lines, "", ""])
    if head.count("\r") != len(lines) + 1 or head.count("\n") != len(lines) + 1 or "\0" in head:
        raise ValueError("a line break or NUL in a header")
    return head.encode("utf-8", "replace")


def origin_of(url: SplitResult) -> str:
    """Scheme, host and port, the port only when it is not the usual one."""
    port = "" if url.port in (None, _PORTS.get(url.scheme)) else f":{url.port}"
    return f"{url.scheme}://{_host(url)}{port}"


def target_of(url: SplitResult) -> str:
    """Give what a request line names: path and query, with nothing in them that would end it."""
    return quote((url.path or "/") + (f"?{url.query}" if url.query else ""), safe=_VISIBLE)


def tls_context(
    *, verify: bool = True, ca: str | None = None, cert: str | tuple[str, str] | None = None
) -> ssl.SSLContext:
    """Make what TLS needs: whom to trust (the system's choice, or `ca`) and who this client is."""
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert is not None:
        context.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
    return context


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
    if not proxy_url or urllib.request.proxy_bypass(host):
        return None
    return _proxy_for(url, proxy_url if "://" in proxy_url else f"http://{proxy_url}")


def _proxy_headers(proxy: SplitResult) -> list[Header]:
    if proxy.username is None:
        return []
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [("Proxy-Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")]
