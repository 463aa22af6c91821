"""WebSocket, the client's side: connecting, and the handshake."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import CloseCode
from websockets.uri import parse_uri

from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.limits import Limits
from mcpearl.transports.addresses import CONNECT_TIMEOUT, TcpAddress
from mcpearl.transports.socket import SocketClient
from mcpearl.transports.tls import Tls, client_context
from mcpearl.transports.transport import Receiver
from mcpearl.transports.websocket import (
    DEFLATE,
    SUBPROTOCOL,
    Beat,
    MessageFramer,
    WebSocketStream,
    logger,
)


class WebSocketClient(WebSocketStream, SocketClient):
    """The client's side.

    >>> transport = WebSocketClient("wss://tools.example/mcp", Limits())
    """

    core: ClientProtocol

    def __init__(
        self,
        url: str,
        limits: Limits,
        *,
        headers: Mapping[str, str] | None = None,
        tls: Tls | ssl.SSLContext | None = None,
        beat: Beat | None = None,
    ) -> None:
        uri = parse_uri(url)
        self.url = url
        self.beat = beat or Beat()
        self.core = ClientProtocol(
            uri,
            subprotocols=[SUBPROTOCOL],
            extensions=[ClientPerMessageDeflateFactory(**DEFLATE)],
            max_size=limits.max_message,
            logger=logger,
        )
        self._headers = dict(headers or {})
        self._opened: asyncio.Future[None] | None = None  # there while the handshake goes on
        context = client_context(tls) if uri.secure else None
        address = TcpAddress(uri.host, uri.port, context, name=url)
        SocketClient.__init__(self, address, limits, MessageFramer(self.core))

    async def open(self, receiver: Receiver) -> None:
        """Connect and shake hands."""
        opened = self._opened = asyncio.get_running_loop().create_future()
        await super().open(receiver)
        request = self.core.connect()
        for name, value in self._headers.items():
            if name in request.headers:
                del request.headers[name]  # a name set again is there twice
            request.headers[name] = value
        self.core.send_request(request)
        self.write_own()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await opened
        except TimeoutError:
            self.wire.abort()
            raise ConnectionLost(
                f"cannot connect to {self.url}: no handshake within {CONNECT_TIMEOUT:g} s"
            ) from None
        except BaseException:
            self.wire.abort()
            raise
        finally:
            self._opened = None
        self.begin_beat()

    def shake_hands(self, events: Sequence[Any]) -> None:
        """Take the server's response."""
        opened = self._opened
        if opened is None or opened.done():
            return
        error = self.core.handshake_exc
        if error is not None:
            opened.set_exception(ConnectionLost(f"cannot connect to {self.url}: {_said(error)}"))
        elif events:
            opened.set_result(None)
            self.take(self.framer.messages(events[1:]))

    def part(self) -> None:
        """Report the end: to a client none is in order that it did not ask for."""
        reason = self.end_reason()
        if reason is None and self.core.close_rcvd_then_sent:
            reason = ConnectionLost("the server closed the connection")
        self.finish(reason)
        self.wire.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail a handshake that was going on, too."""
        if self._opened is not None and not self._opened.done():
            said = "the server closed the connection before the handshake was done"
            self._opened.set_exception(ConnectionLost(f"cannot connect to {self.url}: {said}"))
        super().connection_lost(exc)

    async def close(self) -> None:
        """Say goodbye, and give the server a moment to answer it."""
        if not self.is_gone and not self.finished:
            await self.settle()
            self.send_close(CloseCode.NORMAL_CLOSURE)
            await self.until_gone(1.0)
        await super().close()


def _said(error: Exception) -> str:
    """What a server that refused the handshake said."""
    if isinstance(error, InvalidStatus):
        response = error.response
        body = bytes(response.body or b"")[:200].decode(errors="replace").strip()
        return f"it answered {response.status_code} {response.reason_phrase}: {body}".rstrip(": ")
    return str(error)
