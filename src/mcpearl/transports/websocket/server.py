"""WebSocket, the server's side: the handshake, and which clients may open one."""

import asyncio
import http
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from websockets.exceptions import InvalidHeader
from websockets.frames import CloseCode
from websockets.http11 import Request as Handshake
from websockets.http11 import Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from mcpearl.net.http_server.request import PeerInfo, UpgradeRequest, gathered
from mcpearl.net.tls import certificate_of, subject_of
from mcpearl.transports.http_server.gate import Gate, Refused
from mcpearl.transports.http_server.origin import ServedLocation
from mcpearl.transports.http_server.refused_requests import RefusedRequests
from mcpearl.transports.socket import Acceptor, SocketServer
from mcpearl.transports.websocket.deflate import ServerDeflate
from mcpearl.transports.websocket.frames import (
    SUBPROTOCOL,
    Beat,
    MessageFramer,
    WebSocketStream,
    logger,
)

_ASKING = 1.0  # seconds a client that will be refused has to send its request
_NO_REQUEST = b"This is not an HTTP request that opens a WebSocket.\n"
_END_OF_HEAD = b"\r\n\r\n"
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_NO_REQUEST), _NO_REQUEST)
)


class WebSocketServer(WebSocketStream, SocketServer):
    """The server's side of one client, on a port of its own or handed over by an HTTP server."""

    core: ServerProtocol

    def __init__(
        self,
        reception: Acceptor,
        location: ServedLocation,
        gate: Gate | None = None,
        beat: Beat | None = None,
        refusals: RefusedRequests | None = None,
    ) -> None:
        self.beat = beat or Beat()
        self._refusals = refusals or RefusedRequests()
        self._location = location
        self._gate = gate
        self._admitting: asyncio.Task[None] | None = None
        # Why the client will be refused, once it has sent its request.
        self._refusal: str | None = None
        self._seam = b""  # the last bytes of the request so far: its end may come in two pieces
        self._has_asked = False
        self._early = b""  # bytes that followed the request
        self.core = ServerProtocol(
            subprotocols=[SUBPROTOCOL],
            extensions=[ServerDeflate()],
            max_size=reception.limits.max_message,
            logger=logger,
        )
        self.core.debug = False  # it would log the headers, including tokens
        SocketServer.__init__(self, reception, MessageFramer(self.core))

    def take_in(self) -> None:
        """Do nothing yet: the client has to send its request first."""

    def shake_hands(self, data: bytes) -> None:
        """Take a part of the client's request; bytes that follow it wait until it is answered."""
        if self._has_asked:
            self._early += data
            return
        seam = self._seam + data
        end = seam.find(_END_OF_HEAD)
        self._has_asked = end >= 0
        cut = end + len(_END_OF_HEAD) - len(self._seam) if self._has_asked else len(data)
        self._early = data[cut:]
        self._seam = seam[-3:]
        self.core.receive_data(data[:cut])
        self._look_at(self.core.events_received())

    def _look_at(self, events: Sequence[Any]) -> None:
        if events and self._refusal is not None:
            self._turn_away()
        elif events:
            self._examine(events[0])
        elif self.core.handshake_exc is not None:
            answer = b"".join(self.core.data_to_send())
            self.wire.write(answer or _BAD_REQUEST)
            self.say_no_more(None)

    def _examine(self, handshake: Handshake) -> None:
        path, _, query = handshake.path.partition("?")
        headers = gathered(
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in handshake.headers.raw_items()
        )
        address = self.wire.get_extra_info("peername")
        peer = PeerInfo(
            "ws" if self.wire.get_extra_info("ssl_object") is None else "wss",
            address[:2] if isinstance(address, tuple) else None,
            certificate_of(self.wire),
        )
        request = UpgradeRequest(unquote(path), query.encode("latin-1"), headers, peer)
        self.request = request
        try:
            document = None if self._gate is None else self._gate.document(request)
            if document is not None:
                self._show(document)
                return
            self._location.check(request.path, headers)
            if self._gate is None:
                self._accept(handshake, subject_of(self.wire))
                return
            principal = self._gate.known(request)
        except Refused as refused:
            self._reject(refused)
            return
        if principal is not None:
            self._accept(handshake, principal)
        else:
            self.pause()
            loop = asyncio.get_running_loop()
            self._admitting = loop.create_task(self._admit(handshake, request))

    async def _admit(self, handshake: Handshake, request: UpgradeRequest) -> None:
        assert self._gate is not None
        try:
            principal = await self._gate.admit(request)
        except Refused as refused:
            self._reject(refused)
            return
        except Exception as error:
            logger.error("the gate raised", exc_info=error)
            self._reject(Refused(500, "Authorization failed on the server's side"))
            return
        if not self.finished:
            self.resume()
            self._accept(handshake, principal)

    def _accept(self, handshake: Handshake, principal: Any) -> None:
        response = self.core.accept(handshake)
        self.core.send_response(response)
        self.write_own()
        if self.core.state is not State.OPEN:
            self._note(Refused(response.status_code, _reason(self.core.handshake_exc)))
            self.say_no_more(None)
            return
        self.receiver = self.reception.receive(self, principal)
        self.begin_beat()
        early, self._early = self._early, b""
        if early:
            self.take_bytes(early)

    def _show(self, document: bytes) -> None:
        """Answer a plain request for the metadata that says how to get a token."""
        response = self.core.reject(http.HTTPStatus.OK, document.decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        response.headers["Access-Control-Allow-Origin"] = "*"
        self._respond(response)

    def _reject(self, refused: Refused) -> None:
        if self.finished:
            return
        self._note(refused)
        response = self.core.reject(http.HTTPStatus(refused.status), f"{refused}\n")
        for name, value in refused.headers:
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._respond(response)

    def _note(self, refused: Refused) -> None:
        """Log why a client is refused that has sent its request."""
        assert self.request is not None
        self._refusals.note(self.request, refused)

    def _respond(self, response: Response) -> None:
        self.core.send_response(response)
        self.write_own()
        self.say_no_more(None)

    def eof_received(self) -> bool:
        """Close at once if the client leaves before it has sent its request."""
        return self.core.state is not State.CONNECTING and super().eof_received()

    def part(self) -> None:
        """End: the client sent a close frame, or was sent one for violating the protocol."""
        if not self.finished:
            self.say_no_more(self.end_reason())
        elif self.core.close_rcvd is not None:
            self.wire.close()

    def refuse(self, reason: str) -> None:
        """Tell the client why it is not served, and close."""
        if self.finished or self._refusal is not None:
            return
        if self.core.state is State.CONNECTING:
            # Not every client can take a response before it has sent its request.
            self._refusal = reason
            asyncio.get_running_loop().call_later(_ASKING, self._turn_away)
        else:
            self.send_close(CloseCode.TRY_AGAIN_LATER, reason)
            self.say_no_more(None)

    def _turn_away(self) -> None:
        if not self.finished:
            text = f"{self._refusal}\n"
            self._respond(self.core.reject(http.HTTPStatus.SERVICE_UNAVAILABLE, text))

    def end_writing(self) -> None:
        """Send a close frame; the client's own, or the end of its stream, closes the socket."""
        self.send_close(CloseCode.GOING_AWAY)
        if self.core.eof_sent:
            super().end_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop admitting the client."""
        if self._admitting is not None:
            self._admitting.cancel()
        super().connection_lost(exc)


def _reason(fault: Exception | None) -> str:
    """Return why a handshake failed, without the value of a header, which may be a secret."""
    if isinstance(fault, InvalidHeader):
        return f"The header {fault.name} is missing or not valid"
    return str(fault)


def acceptor(
    reception: Acceptor, location: ServedLocation, gate: Gate | None, beat: Beat
) -> Callable[[], WebSocketServer]:
    """Return a function that makes the server's side of each client."""
    refusals = RefusedRequests()
    return lambda: WebSocketServer(reception, location, gate, beat, refusals)
