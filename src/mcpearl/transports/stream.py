"""Messages on a byte stream: framing, gathered writes, and the bound on what a slow reader costs.

Pipes and sockets differ only in how they are opened. What is sent in one turn of the loop leaves in
one write; what a peer does not read is held up to a bound, then the peer is dropped.
"""

import asyncio
from typing import Any

from mcpearl.net.addresses import Address, Unreachable
from mcpearl.net.watermark import high_water
from mcpearl.protocol.errors import ConnectionLost, LimitReached
from mcpearl.protocol.framing import Framer, NewlineFramer
from mcpearl.protocol.limits import Limits
from mcpearl.transports.transport import Receiver

_PATIENCE = 2.0  # seconds a peer may take nothing of what is left, at the end


class Outbox:
    """What waits to be written to one write transport of the loop."""

    def __init__(self, framer: Framer, limit: int) -> None:
        self._framer = framer
        self._limit = limit
        self._much = high_water(
            limit
        )  # bytes worth a write of their own; unread, worth waiting for
        self._messages: list[bytes] = []
        self._size = 0  # of these messages
        self._writer: asyncio.WriteTransport | None = None
        self._call_soon: Any = None  # the loop's, once there is something to write to
        self._scheduled = False

    def attach(self, writer: asyncio.WriteTransport) -> None:
        """Begin to write."""
        self._writer = writer
        self._call_soon = asyncio.get_running_loop().call_soon
        writer.set_write_buffer_limits(high=self._much)
        self.flush()

    def put(self, message: bytes) -> None:
        """Take one message."""
        self._messages.append(message)
        self._size += len(message)
        if self._size > self._much:
            self.flush()  # so that what follows in this turn knows whether the peer keeps up
        elif not self._scheduled and self._call_soon is not None:
            self._scheduled = True
            self._call_soon(self._turn_ends)

    def _turn_ends(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand everything taken so far to the loop, in one write."""
        writer = self._writer
        if not self._messages or writer is None or writer.is_closing():
            return
        data = b"".join(map(self._framer.frame, self._messages))
        self._messages.clear()
        self._size = 0
        writer.write(data)

    @property
    def overfull(self) -> bool:
        """Whether the peer has left more unread than it may."""
        return self._writer is not None and self._writer.get_write_buffer_size() > self._limit

    @property
    def waiting(self) -> int:
        """How many bytes the system has not taken yet."""
        return 0 if self._writer is None else self._writer.get_write_buffer_size()

    def unsent(self) -> list[bytes]:
        """Give up what was taken but never handed to the loop: it certainly did not leave."""
        messages, self._messages = self._messages, []
        self._size = 0
        return messages

    def empty(self) -> bool:
        """Whether everything was handed to the system."""
        return self._writer is None or not (self._messages or self.waiting)


class StreamProtocol(asyncio.Protocol):
    """The loop's side of a byte stream, turned into a `Receiver`'s."""

    def __init__(self, receiver: Receiver, limits: Limits, framer: Framer | None = None) -> None:
        self.receiver = receiver
        self.framer: Framer = framer or NewlineFramer(limits.max_message)
        self.outbox = Outbox(self.framer, limits.max_outgoing)
        self.reader: asyncio.ReadTransport | None = None
        self.paused = False
        self.finished = False

    def data_received(self, data: bytes) -> None:
        """Cut what was read into messages and pass them on."""
        self.receiver.received(self.framer.feed(data))

    def eof_received(self) -> bool:
        """Keep writing: the peer may still read."""
        self.receiver.ended()
        return True

    def send(self, message: bytes) -> None:
        """Take one message for the peer; a peer that leaves too much unread is dropped."""
        if self.finished:
            return
        self.outbox.put(message)
        if self.paused:
            self.check_bound()

    def check_bound(self) -> None:
        """Drop a peer that leaves too much unread."""
        if self.outbox.overfull:
            self.finish(LimitReached("the peer does not read what it is sent"))

    def pause_writing(self) -> None:
        """Note that the peer does not keep up."""
        self.paused = True
        self.receiver.writable(False)

    def resume_writing(self) -> None:
        """Note that the peer caught up."""
        self.paused = False
        self.receiver.writable(True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the stream."""
        self.finish(exc)

    async def settle(self) -> None:
        """Write what is left, and wait while the peer takes it; one that is gone ends it itself."""
        clock = asyncio.get_running_loop().time
        outbox = self.outbox
        outbox.flush()
        left, since = outbox.waiting, clock()
        while not (self.finished or outbox.empty()) and clock() < since + _PATIENCE:
            await asyncio.sleep(0.01)
            if outbox.waiting < left:
                left, since = outbox.waiting, clock()

    def finish(self, reason: Exception | None) -> None:
        """Report the end, once."""
        if not self.finished:
            self.finished = True
            unsent = getattr(self.receiver, "unsent", None)
            if unsent is not None:
                unsent(self.outbox.unsent())
            self.receiver.lost(reason)


async def connect(address: Address, protocol: asyncio.Protocol) -> None:
    """Connect `protocol` to an address, or raise `ConnectionLost` with the reason."""
    try:
        await address.dial(protocol)
    except Unreachable as error:
        raise ConnectionLost(str(error)) from None
