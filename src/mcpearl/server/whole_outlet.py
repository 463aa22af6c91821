"""The outlet of a connection that carries all messages of a client, answers among them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mcpearl.runtime import clock

if TYPE_CHECKING:
    from mcpearl.transports.transport import Transport


class WholeOutlet:
    """Sends answers through the transport of their connection.

    Args:
        transport: Carries the client's messages.
    """

    __slots__ = ("_session_id", "_transport", "finish", "send")
    send: Callable[..., None]
    finish: Callable[..., None]

    def __init__(self, transport: "Transport") -> None:
        self.send = self.finish = transport.send
        self._transport = transport
        self._session_id: str | None = None

    @property
    def address(self) -> str | None:
        """The address of the client, where its transport has one."""
        address, request = self._transport.peer_address, self._transport.request
        if address is not None or request is None or request.peer.address is None:
            return address
        return str(request.peer.address[0])

    @property
    def medium(self) -> str:
        """What the client's messages travel on."""
        return self._transport.medium

    @property
    def request_headers(self) -> Mapping[bytes, bytes]:
        """The headers of the request that opened the connection, where it began with one."""
        request = self._transport.request
        return {} if request is None else request.headers

    @property
    def session_id(self) -> str | None:
        """The id of the session; on wires whose connection is the session, a random one."""
        if self._session_id is None:
            from mcpearl.transports.null import NullTransport  # a start needs no id

            if not isinstance(self._transport, NullTransport):
                self._session_id = self._transport.session_id or clock.token(24)
        return self._session_id

    async def drained(self) -> None:
        """Wait for nothing: the connection knows whether its client reads."""

    def send_away(self, retry_ms: int) -> None:
        """Do nothing: there is no response to end early."""
