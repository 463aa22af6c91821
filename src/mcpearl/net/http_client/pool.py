"""The connections to one origin: made on demand, kept, and used again.

It promises more than a common HTTP client in two ways: when an exchange is given up the server learns of
it at once, whether or not an answer has begun; and a failure says whether anything was sent. The pool
never repeats a request, follows a redirect or decompresses a body.
"""

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from mcpearl.net.addresses import reason_of
from mcpearl.net.http_client.dial import Dialer
from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.http_client.http1 import AnswerHeads, Http1Connection

if TYPE_CHECKING:
    from mcpearl.net.http_client.http2 import Http2Connection

_MAX_IDLE = 4.0  # seconds; servers commonly close idle connections after 5
_MAX_KEPT = 32  # idle HTTP/1.1 connections
_MAX_SHARED = 8  # HTTP/2 connections; when all their streams are taken, requests wait
_UNWILLING = "the server takes no requests"


class ConnectionPool:
    """The connections to one origin.

    >>> connection = await pool.acquire()
    >>> connection.send("POST", "/mcp", [("Accept", "application/json")], b"{}")
    >>> await connection.answered()
    >>> connection.status, await connection.chunk()
    >>> connection.release()

    Args:
        url: Any address of the origin.
        tls: The context for `https://`, which also offers the versions of HTTP.
        proxy: The `http://` address of a proxy; by default the environment's, if it names one.
        connect_timeout: Seconds that connecting may take.
        http2: Whether a server that chooses HTTP/1.1 is refused.
        dialer: Makes the connections, in place of one made from the other arguments.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        connect_timeout: float = 10.0,
        http2: bool = False,
        dialer: Dialer | None = None,
    ) -> None:
        self._dialer = dialer or Dialer(url, tls, proxy, http2)
        self._connect_timeout = connect_timeout
        self._kept: list[Http1Connection] = []  # idle; the last one was used last
        self._shared: list[Http2Connection] = []  # those that take new streams
        self._one_each = not self._dialer.negotiates  # HTTP/1.1: a connection for each exchange
        self._opening: asyncio.Task[None] | None = None  # the next shared connection
        self._vacancy: asyncio.Future[None] | None = None  # done when a stream may be free
        self._refusals = 0  # connections that the server ended before their first request
        self._closed = False
        self.heads = AnswerHeads()
        """Heads of earlier answers."""

    @property
    def origin(self) -> str:
        """Scheme, host and port, the port only when it is not the default."""
        return self._dialer.origin

    @property
    def proxied(self) -> bool:
        """Whether a proxy makes the connections."""
        return self._dialer.proxied

    def pin(self, addresses: list[str]) -> None:
        """Connect to these addresses, in turn, instead of looking the name up."""
        self._dialer.pin(addresses)

    # Taking

    async def reach(self) -> None:
        """Connect, to check that the server is there; keep the connection for the first exchange."""
        await self._connect()

    async def acquire(self) -> HttpExchange:
        """Return a free connection or stream; connect if there is none."""
        refusals = self._refusals
        while (free := self.free()) is None:
            if self._refusals != refusals:
                raise self._unreachable(_UNWILLING)
            if self._one_each:
                await self._connect()
            else:
                await self._room()
        return free

    def idle(self) -> Http1Connection | None:
        """Return an HTTP/1.1 connection that is free now, or None."""
        while self._kept:
            connection = self._kept.pop()
            if connection.usable(_MAX_IDLE):
                return connection
            connection.drop()
        return None

    def free(self) -> HttpExchange | None:
        """Return a connection or stream that is free now, or None."""
        connection = self.idle()
        if connection is not None:
            return connection
        for shared in list(self._shared):
            if not shared.usable(_MAX_IDLE):
                shared.retire()
            elif shared.has_room:
                return shared.stream()
        return None

    async def _room(self) -> None:
        """Wait until a stream may be free. The first request to wait opens one more connection for all.

        No connection is opened while a server takes no streams at all: another would not take any either.
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
            opening.exception()  # every waiting request raises it

    async def _connect(self) -> None:
        """Make one more connection."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._dialer.dial(self)
        except TimeoutError:
            raise self._unreachable(f"no connection within {self._connect_timeout:g} s") from None
        except ExchangeFailed as error:
            raise self._unreachable(error.reason) from None
        except OSError as error:  # also TLS and name resolution
            raise self._unreachable(reason_of(error)) from None
        if self._closed:
            connection.drop()
            raise self._unreachable("the client was closed")
        if not connection.usable(_MAX_IDLE):
            connection.drop()
            self._refusals += 1
            raise self._unreachable(_UNWILLING)
        self._one_each = isinstance(connection, Http1Connection)
        if isinstance(connection, Http1Connection):
            self._kept.append(connection)
        else:
            self._shared.append(connection)

    def _unreachable(self, reason: str) -> ExchangeFailed:
        return ExchangeFailed(f"cannot connect to {self.origin}: {reason}", sent=False)

    # Taking back

    def keep(self, connection: Http1Connection) -> None:
        """Take back a connection whose exchange is over."""
        if self._closed or len(self._kept) >= _MAX_KEPT:
            connection.drop()
        else:
            self._kept.append(connection)

    def vacant(self) -> None:
        """Note that a stream of a shared connection may be free."""
        vacancy, self._vacancy = self._vacancy, None
        if vacancy is not None and not vacancy.done():
            vacancy.set_result(None)

    def forget(
        self, connection: "Http1Connection | Http2Connection", *, refused: bool = False
    ) -> None:
        """Note that a connection ended, or takes nothing new.

        Args:
            connection: The connection.
            refused: Whether the server ended it before its first request. The requests that wait then
                fail, since the next connection would most likely end in the same way.
        """
        known: list[Any] = self._kept if isinstance(connection, Http1Connection) else self._shared
        if connection in known:
            known.remove(connection)
            self._refusals += refused
            self.vacant()  # a waiting request may have to connect

    def close(self) -> None:
        """Close idle connections now, and the others when they are released."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        while self._kept:
            self._kept.pop().drop()
        for shared in list(self._shared):
            shared.retire()
