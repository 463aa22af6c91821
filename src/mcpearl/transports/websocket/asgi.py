"""WebSocket under somebody else's ASGI server: the same transport, made of ASGI's events.

The frames, their size and the ping are the ASGI server's affair; the place, the gate and the flow
are checked here.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from mcpearl.net.http_server.request import Scope, gathered
from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.framing import Frame, FrameError
from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_server.gate import Gate, Refused
from mcpearl.transports.http_server.origin import Location
from mcpearl.transports.transport import Outgoing

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

SUBPROTOCOL = "mcp"
_HIGH = 1024 * 1024  # bytes left unsent at which the server is told to wait
_PARTING = 1.0  # seconds a client has to take its goodbye
_GOING_AWAY = 1001
_TRY_AGAIN_LATER = 1013


class Served(Protocol):
    """What is needed of the server's side of a client."""

    def received(self, frames: list[Frame]) -> None:
        """Take messages."""
        ...

    def lost(self, reason: Exception | None) -> None:
        """Release everything: the client is gone."""
        ...

    def writable(self, flowing: bool) -> None:
        """Note whether the client reads."""
        ...

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, then close."""
        ...


class AsgiWebSocket:
    """One client, as a transport."""

    keeps_alive = True

    def __init__(self, receive: Receive, send: Send, limits: Limits) -> None:
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
        """Move messages until either side ends it, or the time of what the client came with is over."""
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
            return FrameError("a binary frame is no message; send each one as a text frame")
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
                if not self._flowing and self._unsent_bytes <= _HIGH // 2:
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
            self._news.set()
            if self._served is not None:
                self._served.lost(reason)

    # The transport's side

    async def open(self, receiver: Any) -> None:
        """Nothing is left to be done: `run` is what serves the client."""

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        """Take one message; a client that leaves too much unread is dropped."""
        if self._ended:
            return
        self._unsent.append(message)
        self._unsent_bytes += len(message)
        self._news.set()
        if self._unsent_bytes > self._limits.max_outgoing:
            self._end(LimitReached("the peer does not read what it is sent"))
            if self._writing is not None:
                self._writing.cancel()  # it waits for the peer, and nobody waits any more
        elif self._unsent_bytes > _HIGH and self._flowing and self._served is not None:
            self._flowing = False
            self._served.writable(False)

    def flush(self) -> None:
        """Nothing waits for a flush here."""

    def pause(self) -> None:
        """Stop reading."""
        self._may_read.clear()

    def resume(self) -> None:
        """Read again."""
        self._may_read.set()

    async def close(self) -> None:
        """Send what was taken, then end."""
        self._end(None)


class AsgiWebSockets:
    """The ASGI application that takes WebSockets in, at one place."""

    def __init__(
        self,
        place: Location,
        converse: Callable[[AsgiWebSocket, Any], Served],
        limits: Limits,
        gate: Gate | None = None,
        max_connections: int = 10_000,
    ) -> None:
        self._place = place
        self._converse = converse
        self._limits = limits
        self._gate = gate
        self._max_connections = max_connections
        self._open: set[Served] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one client from its handshake to its end."""
        await receive()  # that it wants to connect
        try:
            principal = await self._admit(scope)
        except Refused as refused:
            await _refuse(scope, send, refused)
            return
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
        if len(self._open) >= self._max_connections:
            reason = f"The server has all the {self._max_connections} clients it takes"
            await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": reason})
            return
        transport = AsgiWebSocket(receive, send, self._limits)
        served = self._converse(transport, principal)
        self._open.add(served)
        try:
            await transport.run(served, getattr(principal, "time_left", None))
        finally:
            self._open.discard(served)

    async def _admit(self, scope: Scope) -> Any:
        headers = gathered(scope["headers"])
        self._place.check(scope["path"].removeprefix(scope.get("root_path", "")), headers)
        if SUBPROTOCOL not in scope.get("subprotocols", ()):
            raise Refused(400, f"The subprotocol has to be {SUBPROTOCOL!r}")
        if self._gate is None:
            return None
        return self._gate.known(scope, headers) or await self._gate.admit(scope, headers)

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, then close every client."""
        await asyncio.gather(*(served.drain(grace) for served in list(self._open)))


async def _refuse(scope: Scope, send: Send, refused: Refused) -> None:
    """Say why, where the ASGI server lets us; it makes a 403 of it otherwise."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    body = f"{refused}\n".encode()
    headers = [*refused.headers, (b"content-type", b"text/plain; charset=utf-8")]
    await send(
        {"type": "websocket.http.response.start", "status": refused.status, "headers": headers}
    )
    await send({"type": "websocket.http.response.body", "body": body})
