"""WebSocket, the server's side: who may open one, and the handshake."""

import asyncio
import http
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from mcpearl.net.http_server.request import gathered
from mcpearl.net.tls import extensions_of, subject_of
from mcpearl.transports.http_server.gate import Gate, Refused
from mcpearl.transports.http_server.origin import Location
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
_NO_REQUEST = b"This is no HTTP request that opens a WebSocket.\n"
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
        place: Location,
        gate: Gate | None = None,
        beat: Beat | None = None,
    ) -> None:
        self.beat = beat or Beat()
        self._place = place
        self._gate = gate
        self._admitting: asyncio.Task[None] | None = None
        self._refusal: str | None = None  # why it will not be served, told when it has asked
        self._seam = b""  # the last bytes of the request so far: its end may be in two pieces
        self._has_asked = False
        self._early = b""  # what came behind the request
        self.core = ServerProtocol(
            subprotocols=[SUBPROTOCOL],
            extensions=[ServerDeflate()],
            max_size=reception.limits.max_message,
            logger=logger,
        )
        self.core.debug = False  # it would log the headers, and tokens with them
        SocketServer.__init__(self, reception, MessageFramer(self.core))

    def take_in(self) -> None:
        """Wait for the client's request."""

    def shake_hands(self, data: bytes) -> None:
        """Take a part of the client's request; what follows it waits until that is answered."""
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

    def _examine(self, request: Request) -> None:
        headers = gathered(
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in request.headers.raw_items()
        )
        path, _, query = request.path.partition("?")
        scope = {
            "type": "websocket",
            "scheme": "ws" if self.wire.get_extra_info("ssl_object") is None else "wss",
            "path": unquote(path),
            "query_string": query.encode("latin-1"),
            "headers": list(headers.items()),
            "client": self.wire.get_extra_info("peername") or None,
            "extensions": extensions_of(self.wire),
        }
        try:
            document = None if self._gate is None else self._gate.document(scope)
            if document is not None:
                self._show(document)
                return
            self._place.check(unquote(path), headers)
            if self._gate is None:
                self._accept(request, subject_of(self.wire))
                return
            principal = self._gate.known(scope, headers)
        except Refused as refused:
            self._reject(refused)
            return
        if principal is not None:
            self._accept(request, principal)
        else:
            self.pause()
            loop = asyncio.get_running_loop()
            self._admitting = loop.create_task(self._admit(request, scope, headers))

    async def _admit(
        self, request: Request, scope: dict[str, Any], headers: Mapping[bytes, bytes]
    ) -> None:
        assert self._gate is not None
        try:
            principal = await self._gate.admit(scope, headers)
        except Refused as refused:
            self._reject(refused)
            return
        except Exception as error:
            logger.error("the gate raised", exc_info=error)
            self._reject(Refused(500, "Authorization failed on the server's side"))
            return
        if not self.finished:
            self.resume()
            self._accept(request, principal)

    def _accept(self, request: Request, principal: Any) -> None:
        response = self.core.accept(request)
        self.core.send_response(response)
        self.write_own()
        if self.core.state is not State.OPEN:
            self.say_no_more(None)
            return
        self.receiver = self.reception.receive(self, principal)
        self.begin_beat()
        early, self._early = self._early, b""
        if early:
            self.take_bytes(early)

    def _show(self, document: bytes) -> None:
        """Answer who does not want a WebSocket, but to know how to get into one."""
        response = self.core.reject(http.HTTPStatus.OK, document.decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        response.headers["Access-Control-Allow-Origin"] = "*"
        self._respond(response)

    def _reject(self, refused: Refused) -> None:
        if self.finished:
            return
        response = self.core.reject(http.HTTPStatus(refused.status), f"{refused}\n")
        for name, value in refused.headers:
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._respond(response)

    def _respond(self, response: Response) -> None:
        self.core.send_response(response)
        self.write_own()
        self.say_no_more(None)

    def eof_received(self) -> bool:
        """Close at once on a client that leaves before it has asked for anything."""
        return self.core.state is not State.CONNECTING and super().eof_received()

    def part(self) -> None:
        """End: the client said goodbye, or has been told what it did."""
        if not self.finished:
            self.say_no_more(self.end_reason())
        elif self.core.close_rcvd is not None:
            self.wire.close()

    def refuse(self, reason: str) -> None:
        """Tell the client why it is not served, and have it go."""
        if self.finished or self._refusal is not None:
            return
        if self.core.state is State.CONNECTING:
            # Not every client can take an answer before it has asked.
            self._refusal = reason
            asyncio.get_running_loop().call_later(_ASKING, self._turn_away)
        else:
            self.send_close(CloseCode.TRY_AGAIN_LATER, reason)
            self.say_no_more(None)

    def _turn_away(self) -> None:
        if not self.finished:
            said = f"{self._refusal}\n"
            self._respond(self.core.reject(http.HTTPStatus.SERVICE_UNAVAILABLE, said))

    def end_writing(self) -> None:
        """Say goodbye; the client's own goodbye, or its end, closes the socket."""
        self.send_close(CloseCode.GOING_AWAY)
        if self.core.eof_sent:
            super().end_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waiting to be admitted any more."""
        if self._admitting is not None:
            self._admitting.cancel()
        super().connection_lost(exc)


def acceptor(
    reception: Acceptor, place: Location, gate: Gate | None, beat: Beat
) -> Callable[..., WebSocketServer]:
    """Give what makes the server's side of each client; uvicorn's arguments are of no interest."""
    return lambda **_: WebSocketServer(reception, place, gate, beat)
