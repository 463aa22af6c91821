"""WebSocket under an ASGI server: the same transport, made of ASGI's events.

The ASGI server handles frames, their size, and pings. This module checks the location and the gate, and
controls the flow.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from mcpearl.net.http_server.asgi_request import Receive, Scope, Send, path_of, peer_of
from mcpearl.net.http_server.request import UpgradeRequest, gathered
from mcpearl.net.unread import DOES_NOT_READ, HIGH_WATER, Unread
from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.framing import Frame, FrameError
from mcpearl.protocol.limits import Limits
from mcpearl.runtime.budget import UNCOUNTED, Account, Budget
from mcpearl.transports.http_server.gate import Gate, Refused
from mcpearl.transports.http_server.origin import ServedLocation
from mcpearl.transports.http_server.refused_requests import RefusedRequests
from mcpearl.transports.transport import Channel, Outgoing, Receiver
from mcpearl.transports.websocket.frames import SUBPROTOCOL

_PARTING = 1.0  # seconds a client has to take its close frame
_GOING_AWAY = 1001
_TRY_AGAIN_LATER = 1013


class Served(Receiver, Protocol):
    """The server's side of a client, which this transport also ends."""

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, then close."""
        ...


class AsgiWebSocket(Channel):
    """One client, as a transport."""

    keeps_alive = True
    medium = "websocket"
    request: UpgradeRequest | None = None

    def __init__(
        self,
        receive: Receive,
        send: Send,
        limits: Limits,
        account: Account,
        stall_timeout: float = 60.0,
        request: UpgradeRequest | None = None,
    ) -> None:
        self.request = request
        self._account = account
        self._stall_timeout = stall_timeout
        self._unread: Unread | None = None  # while the client has much to read
        self._written = 0  # bytes, including those that wait
        self._receive = receive
        self._send = send
        self._limits = limits
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._news = asyncio.Event()  # there is something to send, or the end has come
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._flowing = True
        self._ended = False
        self._served: Served | None = None
        self._writing: asyncio.Future[None] | None = None

    async def run(self, served: Served, seconds: float | None = None) -> None:
        """Move messages until either side ends it, or the client's token expires in `seconds`."""
        self._served = served
        reading = asyncio.ensure_future(self._read(served))
        writing = self._writing = asyncio.ensure_future(self._write(served))
        try:
            work = (reading, writing)
            await asyncio.wait(work, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not (reading.done() or writing.done()):
                self._end(None)
                await asyncio.wait((writing,), timeout=_PARTING)
        finally:
            reading.cancel()
            writing.cancel()
            self._end(None)
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(self, served: Served) -> None:
        while True:
            await self._may_read.wait()
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                return
            served.received([self._message(event)])

    def _message(self, event: dict[str, Any]) -> Frame:
        text = event.get("text")
        if text is None:
            return FrameError("a binary frame is not a message; send each one as a text frame")
        message = text.encode("utf-8", "surrogatepass")
        if len(message) > self._limits.max_message:
            return FrameError(f"message is over the limit of {self._limits.max_message} bytes")
        return bytes(message)

    async def _write(self, served: Served) -> None:
        while True:
            while self._unsent:
                message = self._unsent.popleft()
                await self._send({"type": "websocket.send", "text": message.decode()})
                self._unsent_bytes -= len(message)
                if self._unread is not None and self._unsent_bytes <= UNCOUNTED:
                    self._stop_counting()
                if not self._flowing and self._unsent_bytes <= HIGH_WATER // 2:
                    self._flowing = True
                    served.writable(True)
            if self._ended:
                await self._send({"type": "websocket.close", "code": _GOING_AWAY})
                return
            self._news.clear()
            await self._news.wait()

    def _end(self, reason: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self._stop_counting()
            self._news.set()
            if self._served is not None:
                self._served.lost(reason)

    # The transport's side

    async def open(self, receiver: Any) -> None:
        """Do nothing: `run` serves the client."""

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        """Take one message; a client that leaves too much unread is dropped."""
        if self._ended:
            return
        self._unsent.append(message)
        self._unsent_bytes += len(message)
        self._written += len(message)
        self._news.set()
        if self._unsent_bytes > self._limits.max_outgoing:
            self._drop(DOES_NOT_READ)
            return
        if self._unsent_bytes > UNCOUNTED:
            self._count_unread()
        if self._unsent_bytes > HIGH_WATER and self._flowing and self._served is not None:
            self._flowing = False
            self._served.writable(False)

    def _count_unread(self) -> None:
        if self._unread is None:
            waiting, written = (lambda: self._unsent_bytes), (lambda: self._written)
            self._unread = Unread(self._account, self._stall_timeout, waiting, written, self._drop)
        self._unread.count()

    def _stop_counting(self) -> None:
        if self._unread is not None:
            self._unread.close()
            self._unread = None

    def _drop(self, reason: str) -> None:
        self._end(LimitReached(reason))
        if self._writing is not None:
            self._writing.cancel()  # it waits for a client that does not read

    def flush(self) -> None:
        """Do nothing: messages are sent as they come."""

    def pause(self) -> None:
        """Stop reading."""
        self._may_read.clear()

    def resume(self) -> None:
        """Read again."""
        self._may_read.set()

    async def close(self) -> None:
        """Send what was taken, then close."""
        self._end(None)


class AsgiWebSockets:
    """The ASGI application of the WebSockets at one location.

    Args:
        location: The path, and the hosts and origins that may use it.
        converse: Makes the server's side of a client, with its account.
        limits: The limits of each client.
        budget: Counts what is held for the clients.
        gate: Finds the principal of each client.
        max_connections: Clients at once; one more is closed with code 1013.
        stall_timeout: Seconds in which a client must read some of what it was sent.
    """

    def __init__(
        self,
        location: ServedLocation,
        converse: Callable[[AsgiWebSocket, Any, Account], Served],
        limits: Limits,
        budget: Budget,
        gate: Gate | None = None,
        max_connections: int = 10_000,
        stall_timeout: float = 60.0,
    ) -> None:
        self._location = location
        self._converse = converse
        self._limits = limits
        self._gate = gate
        self._budget = budget
        self._max_connections = max_connections
        self._stall_timeout = stall_timeout
        self._open: set[Served] = set()
        self._refusals = RefusedRequests()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one client from its handshake to its end."""
        await receive()  # the request to connect
        request = _request_of(scope)
        try:
            principal = await self._admit(scope, request)
        except Refused as refused:
            self._refusals.note(request, refused)
            await _refuse(scope, send, refused)
            return
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
        if len(self._open) >= self._max_connections:
            reason = f"The server has as many clients as it takes, {self._max_connections}"
            await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": reason})
            return
        account = self._budget.account()
        transport = AsgiWebSocket(
            receive, send, self._limits, account, self._stall_timeout, request
        )
        served = self._converse(transport, principal, account)
        self._open.add(served)
        try:
            await transport.run(served, None if principal is None else principal.time_left)
        finally:
            self._open.discard(served)

    async def _admit(self, scope: Scope, request: UpgradeRequest) -> Any:
        self._location.check(request.path, request.headers)
        if SUBPROTOCOL not in scope.get("subprotocols", ()):
            raise Refused(400, f"The subprotocol has to be {SUBPROTOCOL!r}")
        if self._gate is None:
            return None
        return self._gate.known(request) or await self._gate.admit(request)

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, then close every client."""
        await asyncio.gather(*(served.drain(grace) for served in list(self._open)))


def _request_of(scope: Scope) -> UpgradeRequest:
    root, query = scope.get("root_path", ""), scope.get("query_string", b"")
    headers = gathered(scope["headers"])
    return UpgradeRequest(path_of(scope), query, headers, peer_of(scope), root)


async def _refuse(scope: Scope, send: Send, refused: Refused) -> None:
    """Send the reason, if the ASGI server can; otherwise it answers 403."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    body = f"{refused}\n".encode()
    headers = [*refused.headers, (b"content-type", b"text/plain; charset=utf-8")]
    await send(
        {"type": "websocket.http.response.start", "status": refused.status, "headers": headers}
    )
    await send({"type": "websocket.http.response.body", "body": body})
