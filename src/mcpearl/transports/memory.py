"""Two transports in one process: what one sends, the other receives by a function call.

The same bytes travel as on any other wire, so the layers above cannot tell the difference.
"""

from mcpearl.net.unread import HIGH_WATER
from mcpearl.protocol.framing import Frame
from mcpearl.transports.transport import Outgoing, Receiver, Transport


class MemoryTransport(Transport):
    """One side of a pair made with `memory_pair`."""

    medium = "memory"
    keeps_alive = True  # there is no network between the two

    def __init__(self) -> None:
        self._peer: MemoryTransport | None = None
        self._receiver: Receiver | None = None
        self._unread: list[Frame] = []  # sent by the peer, not delivered yet
        self._unread_bytes = 0
        self._blocked = False  # the peer leaves too much unread
        self._delivering = False
        self._paused = False
        self._closed = False

    async def open(self, receiver: Receiver) -> None:
        """Begin to deliver messages."""
        self._receiver = receiver
        self._deliver()

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        """Deliver one message to the other side."""
        peer = self._peer
        if peer is None or self._closed:
            return
        peer._unread.append(message)
        peer._unread_bytes += len(message)
        if not peer._delivering:
            peer._deliver()
        if peer._unread_bytes > HIGH_WATER and not self._blocked and self._receiver is not None:
            self._blocked = True
            self._receiver.writable(False)

    def flush(self) -> None:
        """Do nothing: messages are delivered at once."""

    def _deliver(self) -> None:
        # `_delivering` keeps a receiver that sends while it receives from recursing.
        if self._receiver is None:
            return
        self._delivering = True
        try:
            while self._unread and not self._paused:
                frames, self._unread = self._unread, []
                self._unread_bytes = 0
                self._receiver.received(frames)
        finally:
            self._delivering = False
        peer = self._peer
        if peer is not None and peer._blocked and self._unread_bytes <= HIGH_WATER // 2:
            peer._blocked = False
            if peer._receiver is not None:
                peer._receiver.writable(True)

    def pause(self) -> None:
        """Leave further messages with the sender."""
        self._paused = True

    def resume(self) -> None:
        """Deliver messages again."""
        self._paused = False
        if not self._delivering:
            self._deliver()

    async def close(self) -> None:
        """End both sides."""
        self._end()
        if self._peer is not None:
            self._peer._end()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._unread.clear()
        if self._receiver is not None:
            self._receiver.lost(None)


def memory_pair() -> tuple[MemoryTransport, MemoryTransport]:
    """Make two connected transports."""
    one, other = MemoryTransport(), MemoryTransport()
    one._peer, other._peer = other, one
    return one, other
