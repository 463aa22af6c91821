"""Opening a WebSocket, the client's side: one attempt, with a socket of its own.

A server that requires authorization refuses the handshake and closes the socket. So each attempt is an
object of its own; the one that succeeds hands its socket over to the transport.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response
from websockets.uri import WebSocketURI

from mcpearl.net.addresses import CONNECT_TIMEOUT, Address
from mcpearl.net.http_client.exchange import Header, note
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.transports.stream import connect
from mcpearl.transports.websocket.deflate import ClientDeflate
from mcpearl.transports.websocket.frames import SUBPROTOCOL, logger


class WebSocketHandshake(asyncio.Protocol):
    """One request for a WebSocket, and its answer."""

    def __init__(self, uri: WebSocketURI, max_message: int, name: str) -> None:
        self.core = ClientProtocol(
            uri,
            subprotocols=[SUBPROTOCOL],
            extensions=[ClientDeflate()],
            max_size=max_message,
            logger=logger,
        )
        self.core.debug = False  # it would log the headers, and tokens with them
        self.status = 0
        self.headers: dict[str, str] = {}
        self._name = name
        self._wire: asyncio.Transport | None = None
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events: list[Any] = []  # the response, and what came with it
        self._lost: tuple[Exception | None] | None = None

    async def ask(self, address: Address, headers: Sequence[Header]) -> "WebSocketHandshake":
        """Connect, send the request and wait for its answer, whatever that says."""
        await connect(address, self)
        request = self.core.connect()
        for name, value in headers:
            if name in request.headers:
                del request.headers[name]  # setting a name again adds a second header
            request.headers[name] = value
        self.core.send_request(request)
        try:
            self._write()
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._answered
        except TimeoutError:
            self.release()
            raise self._failure(f"no handshake within {CONNECT_TIMEOUT:g} s") from None
        except BaseException:
            self.release()
            raise
        return self

    def check(self) -> None:
        """Raise when the server did not open the WebSocket."""
        error = self.core.handshake_exc
        if error is not None:
            self.release()
            raise self._failure(_said(error))

    def hand_over(self, protocol: asyncio.Protocol) -> list[Any]:
        """Hand the socket over to the transport; return the frames that came with the answer."""
        wire = self._wire
        assert wire is not None
        wire.set_protocol(protocol)
        protocol.connection_made(wire)
        if self._lost is not None:
            protocol.connection_lost(self._lost[0])
        else:
            wire.resume_reading()
        return self._events[1:]

    def release(self) -> None:
        """Close the socket."""
        if self._wire is not None:
            self._wire.abort()

    def _failure(self, reason: str) -> ConnectionLost:
        return ConnectionLost(f"cannot connect to {self._name}: {reason}")

    # The loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        self._wire = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take what was read."""
        self.core.receive_data(data)
        self._look()

    def eof_received(self) -> bool:
        """Note the end of the input, which may be the end of the answer."""
        self.core.receive_eof()
        self._look()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the handshake, if there is no answer."""
        self._lost = (exc,)
        if not self._answered.done():
            said = "the server closed the connection before the handshake was done"
            self._answered.set_exception(self._failure(said))

    def _look(self) -> None:
        """Check whether the answer is whole. What follows it is for the next owner of the socket."""
        self._events += self.core.events_received()
        if self._answered.done():
            return
        error = self.core.handshake_exc
        response = self._events[0] if self._events else None
        if isinstance(response, Response):
            self.status = response.status_code
            for name, value in response.headers.raw_items():
                note(self.headers, name.lower(), value)
        if error is not None and not isinstance(error, InvalidStatus):
            self._answered.set_exception(self._failure(_said(error)))
        elif error is not None or response is not None:
            if self._wire is not None and not self._wire.is_closing():
                self._wire.pause_reading()
            self._answered.set_result(None)

    def _write(self) -> None:
        assert self._wire is not None
        self._wire.write(b"".join(self.core.data_to_send()))


def _said(error: Exception) -> str:
    """Return why a handshake failed, with the words of the server that refused it."""
    if isinstance(error, InvalidStatus):
        response = error.response
        body = bytes(response.body or b"")[:200].decode(errors="replace").strip()
        return f"it answered {response.status_code} {response.reason_phrase}: {body}".rstrip(": ")
    return str(error)
