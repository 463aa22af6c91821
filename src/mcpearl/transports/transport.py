"""What a transport is: one duplex stream of messages, and what it tells whoever receives them.

Adding a wire means writing one class with this shape. Messages are handed over by function call,
a list per read, in order; nothing is queued in between.
"""

from typing import Protocol

from mcpearl.protocol.framing import Frame


class Receiver(Protocol):
    """The side of a connection that takes what a transport read. It never raises.

    A client's has more, for wires that know more: `failed(request_id, error)` when the exchange of one
    request broke, `unsent(messages)`, before `lost`, for what was taken but never left, and
    `held(request_id, holding)` when a request, or connecting (None), has to wait for authorization.
    """

    def received(self, frames: list[Frame]) -> None:
        """Take whole messages, and in their place the errors of what was none.

        An empty list is a sign of life: part of a message came.
        """
        ...

    def ended(self) -> None:
        """Note that the peer will send nothing more, though it may still read."""
        ...

    def lost(self, reason: Exception | None) -> None:
        """Note that the connection is gone: None for an orderly end. Called exactly once."""
        ...

    def writable(self, flowing: bool) -> None:
        """Note that the peer stopped reading (False) or caught up again (True)."""
        ...


class Transport(Protocol):
    """One connection to one peer. It is the `Outlet` of everything said on it.

    A wire that notices a dead peer by itself says so with `keeps_alive = True`: no pings then.
    """

    async def open(self, receiver: Receiver) -> None:
        """Connect and begin to hand messages to `receiver`; raises when that cannot be done."""
        ...

    def send(self, message: bytes) -> None:
        """Take one message to be sent in order. After the end it is dropped in silence."""
        ...

    def flush(self) -> None:
        """Send what was taken now, instead of at the end of this turn of the loop."""
        ...

    def pause(self) -> None:
        """Stop reading: the receiver has enough in hand."""
        ...

    def resume(self) -> None:
        """Read again."""
        ...

    async def close(self) -> None:
        """Send what was taken, then end the connection and release everything. Idempotent."""
        ...
