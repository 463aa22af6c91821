"""A transport that shows what passes through it: every message, in both directions.

`Tap` is put around the transport of a client. Neither the client nor the wire notices it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.framing import Frame
from mcpearl.transports.transport import (
    ClientReceiver,
    Outgoing,
    Receiver,
    Transport,
)
from mcpearl.transports.wrapped import WrappedTransport
from mcpearl.types.base import RequestId
from mcpearl.types.methods import REQUESTS

Direction = Literal["sent", "received"]
Show = Callable[[Direction, bytes], None]


class Tap(WrappedTransport):
    """The transport of a client, with a function that sees its messages.

    Args:
        inner: The transport that carries the messages.
        show: Called with each message before it is sent or handed on.
    """

    def __init__(self, inner: Transport, show: Show) -> None:
        super().__init__(inner)
        self._show = show

    async def open(self, receiver: Receiver) -> None:
        """Open the inner transport, and show what it receives."""
        assert isinstance(receiver, ClientReceiver)
        await self._inner.open(_Listening(receiver, self._show))

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        """Show a message, and send it."""
        self._show("sent", message)
        self._inner.send(message, about)


class _Listening:
    """Shows each message before it reaches the receiver of a tapped transport."""

    def __init__(self, receiver: ClientReceiver, show: Show) -> None:
        self._receiver = receiver
        self._show = show
        self.ended = receiver.ended
        self.lost = receiver.lost
        self.writable = receiver.writable
        self.failed = receiver.failed
        self.unsent = receiver.unsent
        self.held = receiver.held

    def received(self, frames: Sequence[Frame | Envelope]) -> None:
        """Show messages, and hand them on."""
        for frame in frames:
            if isinstance(frame, bytes):
                self._show("received", frame)
            elif isinstance(frame, Envelope):
                self._show("received", msgspec.json.encode(frame))
            else:
                self._show("received", str(frame.reason).encode())
        self._receiver.received(frames)


def about(message: dict[str, Any], version: str | None, modern: bool) -> Outgoing:
    """Describe, to the transport that will send it, a message that was not made by a client.

    Args:
        message: The message, for example one that a person wrote.
        version: The protocol version it is in; None before one is agreed.
        modern: Whether it belongs to no session.
    """
    method, id = message.get("method"), message.get("id")
    known = REQUESTS.get(str(method))
    params = None
    if known is not None:
        with suppress(msgspec.ValidationError):
            raw = msgspec.json.encode(message.get("params") or {})
            params = msgspec.json.decode(raw, type=known.params)
    request_id: RequestId | None = id if isinstance(id, int | str) else None
    return Outgoing(
        method if isinstance(method, str) else None, request_id, params, version, modern
    )
