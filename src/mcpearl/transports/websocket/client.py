"""WebSocket, the client's side: a stream socket that is opened by an authorized HTTP request."""

import ssl
from collections.abc import Awaitable, Mapping

from websockets.client import ClientProtocol
from websockets.frames import CloseCode
from websockets.uri import parse_uri

from mcpearl.net.addresses import TcpAddress
from mcpearl.net.http_client.exchange import Header
from mcpearl.net.tls import Tls, client_context
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_client.authorizer import Authorizer, check_given, let_in
from mcpearl.transports.socket import SocketClient
from mcpearl.transports.transport import ClientReceiver, Receiver
from mcpearl.transports.websocket.frames import Beat, MessageFramer, WebSocketStream
from mcpearl.transports.websocket.handshake import WebSocketHandshake


class WebSocketClient(WebSocketStream, SocketClient):
    """The client's side.

    >>> transport = WebSocketClient("wss://tools.example/mcp", Limits())

    Args:
        url: The `ws://` or `wss://` address.
        limits: Bounds of the connection.
        headers: Further headers of the handshake.
        tls: Certificates to trust and to present, or a context.
        beat: When a silent server is pinged.
        authorizer: Supplies the headers that authorize the handshake.
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
        authorizer: Authorizer | None = None,
    ) -> None:
        check_given(headers or (), authorizer)
        self._uri = uri = parse_uri(url)
        if authorizer is not None and uri.user_info:
            raise ValueError("pass either `auth` or a login in the address, not both")
        self.url = url
        self.beat = beat or Beat()
        self._given: list[Header] = list((headers or {}).items())
        self._authorizer = authorizer
        self._max_message = limits.max_message
        context = client_context(tls) if uri.secure else None
        address = TcpAddress(uri.host, uri.port, context, name=url)
        SocketClient.__init__(self, address, limits, MessageFramer())

    async def open(self, receiver: Receiver) -> None:
        """Connect, complete the handshake, and begin to receive."""
        self.receiver = receiver
        handshake = await self._let_in(receiver)
        handshake.check()
        self.core = self.framer.core = handshake.core
        frames = handshake.hand_over(self)
        if not self.finished:
            self.begin_beat()
            self.take(self.framer.messages(frames))

    async def _let_in(self, receiver: Receiver) -> WebSocketHandshake:
        """Make handshakes until one is authorized, each on a new socket."""
        if self._authorizer is None:
            return await self._shake([])

        def hold(holding: bool) -> None:
            if isinstance(receiver, ClientReceiver):
                receiver.held(None, holding)

        url = self.url.replace("ws", "http", 1)  # the handshake is an HTTP request
        return await let_in(self._authorizer, "GET", url, self._shake, hold)

    def _shake(self, shown: list[Header]) -> Awaitable[WebSocketHandshake]:
        handshake = WebSocketHandshake(self._uri, self._max_message, self.url)
        return handshake.ask(self.address, self._given + shown)

    def part(self) -> None:
        """Report the end; it is an error if this client did not ask for it."""
        reason = self.end_reason()
        if reason is None and self.core.close_rcvd_then_sent:
            reason = ConnectionLost("the server closed the connection")
        self.finish(reason)
        self.wire.close()

    async def close(self) -> None:
        """Send a close frame, and wait a moment for the server's."""
        if not self.is_gone and not self.finished:
            await self.settle()
            self.send_close(CloseCode.NORMAL_CLOSURE)
            await self.until_gone(1.0)
        await super().close()
