"""The connections of one HTTP endpoint: how many there may be, what they share, and how they end."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpearl.net.http_server.batching import CongestedBatch, IterationBatch
from mcpearl.net.http_server.http1_connection import HttpServerConnection
from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.net.http_server.request import Head, PeerInfo, Serving
from mcpearl.net.http_server.timeouts import STALL_TIMEOUT
from mcpearl.net.ports import host_of
from mcpearl.runtime.budget import CONNECTION, Budget
from mcpearl.runtime.observer import Reached

if TYPE_CHECKING:
    from mcpearl.runtime.congestion import Congestion

logger = logging.getLogger("mcpearl.http")

KEEP_ALIVE = 5.0  # seconds a connection without a request stays open
_MAX_SURPLUS = 100  # connections that wait for their refusal; more are closed without one
_CROWDED = "Too many connections."
_UNWINDING = 1.0  # seconds for cancelled requests to be answered
_MAX_HEADS = 1024  # heads remembered; when there are more, all are forgotten
_LARGEST_HEAD = 2048  # bytes of a head that is remembered
_END_OF_HEAD = b"\r\n\r\n"


class HttpFront:
    """Makes the connections of one endpoint, and owns what they share.

    Args:
        endpoint: Answers the requests.
        error_body: Makes the body of an error response from its reason.
        max_connections: Connections beyond this get a 503 for their first request.
        stall_timeout: Seconds in which a client must read some of what it was sent.
        websocket: Makes the protocol that takes a connection over after an upgrade request.
        budget: Counts what is held for the clients.
        reached: Called at too many connections, with the name of the setting and the reason.
        congestion: Where requests wait for their turn, if the server sheds load.
        turn_away: Refuses a request that waited too long there, unless it returns False.
        request_type: The class of requests.
        refused: Called when something is refused before there is a request to serve: with how the client
            reached the server, the status, and the reason.
    """

    def __init__(
        self,
        endpoint: Serving,
        error_body: Callable[[str], bytes],
        *,
        max_connections: int,
        stall_timeout: float = STALL_TIMEOUT,
        websocket: Callable[[], asyncio.Protocol] | None = None,
        budget: Budget | None = None,
        reached: Reached | None = None,
        congestion: "Congestion | None" = None,
        turn_away: Callable[[Http1Request], bool] | None = None,
        request_type: type[Http1Request] = Http1Request,
        refused: Callable[[PeerInfo, int, str], None] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.endpoint = endpoint
        self.error_body = error_body
        self.max_connections = max_connections
        self.stall_timeout = stall_timeout
        self.keep_alive = KEEP_ALIVE
        self.websocket = websocket
        self._budget = budget or Budget()
        self._reached = reached
        self.request_type = request_type
        self.refused = refused
        self._received_before = 0  # bytes that were read from connections that have ended
        self.sent_alone = 0
        """Bytes that were written apart from other responses."""
        self._surplus: set[HttpServerConnection] = set()  # they get a 503 for their first request
        self.batch = IterationBatch()
        if congestion is not None:
            self.batch = CongestedBatch(congestion, turn_away)
        self.connections: set[HttpServerConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()  # requests that had to wait for something
        self.heads: dict[bytes, Head] = {}  # seen before, by their bytes
        self._emptied: asyncio.Event | None = None  # set when the last connection leaves

    @property
    def received(self) -> int:
        """Bytes that were read."""
        return self._received_before + sum(each.received for each in self.connections)

    @property
    def sent(self) -> int:
        """Bytes that were written."""
        return self.sent_alone + self.batch.written

    @property
    def is_draining(self) -> bool:
        """Whether the connections are being closed."""
        return self._emptied is not None

    def __len__(self) -> int:
        return len(self.connections)

    def connect(self) -> HttpServerConnection:
        """Make the protocol of a connection that was just accepted."""
        return HttpServerConnection(self)

    def enter(self, connection: HttpServerConnection) -> bool:
        """Charge a new connection to its client; return True if it is surplus, and will be refused."""
        connection.account = self._budget.account(host_of(connection.transport))
        reason = self.refusal_of(connection)
        if reason is None:
            return False
        if len(self._surplus) >= _MAX_SURPLUS:
            connection.transport.abort()
        else:
            self._surplus.add(connection)
        if self._reached is not None and reason == _CROWDED:
            self._reached("max_connections", f"{self.max_connections} connections are open")
        return True

    def refusal_of(self, connection: HttpServerConnection) -> str | None:
        """Return why there is no room for a connection; if there is, charge it and return None."""
        if len(self.connections) - len(self._surplus - {connection}) > self.max_connections:
            return _CROWDED
        charged = connection.account.open("connections")
        if not charged.resize(CONNECTION):
            return connection.account.refusal
        connection.charged = charged
        self._surplus.discard(connection)
        return None

    def leave(self, connection: HttpServerConnection) -> None:
        """Forget a connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._received_before += connection.received
        self._surplus.discard(connection)
        if connection.charged is not None:
            connection.charged.release()
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def remember(self, head: Head, data: bytes) -> None:
        """Remember a head, if `data` is nothing but it and its body.

        Clients mostly repeat their heads, and a head that is known is not parsed again. A head with a
        DPoP proof is not remembered, because the next one has another proof.
        """
        end = data.find(_END_OF_HEAD) + 4
        if head.method != "POST" or not head.keep_alive or end > _LARGEST_HEAD:
            return
        headers = head.headers
        length = headers.get(b"content-length", b"")
        special = b"transfer-encoding" in headers or b"expect" in headers or b"dpop" in headers
        if special or not length.isdigit() or end + int(length) != len(data):
            return
        if not data.startswith(b"POST "):
            return  # blank lines before the request
        if len(self.heads) >= _MAX_HEADS:
            self.heads.clear()
        head.raw, head.end, head.size = data[:end], end, len(data)
        self.heads[head.raw] = head

    async def drain(self, grace: float) -> None:
        """Close idle connections, let requests finish within `grace` seconds, then cancel the rest."""
        self._emptied = asyncio.Event()
        for connection in list(self.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(grace):
                if self.connections:
                    await self._emptied.wait()
                if self.tasks:
                    await asyncio.wait(list(self.tasks))
        except TimeoutError:
            if self.tasks:
                logger.error("%d requests were cancelled at shutdown", len(self.tasks))
            for task in list(self.tasks):
                task.cancel()
            if self.tasks:
                await asyncio.wait(list(self.tasks), timeout=_UNWINDING)
            for connection in list(self.connections):
                connection.close()
