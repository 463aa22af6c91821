"""Messages on a byte stream: framing, gathered writes, and a bound on what a slow reader costs.

Pipes and sockets differ only in how they are opened. Messages sent in one loop iteration leave in one
write. Output the peer does not read is held up to a bound; beyond it the peer is dropped.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from mcpearl.net.unread import DOES_NOT_READ, Unread, high_water
from mcpearl.protocol.errors import ConnectionLost, LimitReached
from mcpearl.protocol.framing import Frame, Framer, NewlineFramer
from mcpearl.protocol.limits import Limits
from mcpearl.runtime.budget import UNCOUNTED, Account, Holding

if TYPE_CHECKING:
    from mcpearl.net.addresses import Address
    from mcpearl.net.http_server.request import RequestInfo
    from mcpearl.transports.transport import Outgoing, Receiver

_PATIENCE = 2.0  # seconds a closing stream waits for a peer that reads nothing


class Outbox:
    """The writing half of a byte stream."""

    def __init__(self, framer: Framer, limit: int, overfull: Callable[[str], None]) -> None:
        self._framer = framer
        self._limit = limit
        self._overfull = overfull  # called with the reason when the peer left too much unread
        # From so many bytes on, messages are written at once; if so many are unread, senders wait.
        self._much = high_water(limit)
        self.messages: list[bytes] = []
        """Taken, and not handed to the loop yet."""
        self._size = 0  # of these messages
        self._writer: asyncio.WriteTransport | None = None
        self._call_soon: Any = None  # the loop's, once there is a writer
        self._scheduled: asyncio.Handle | None = None  # the flush at the end of this iteration
        self._closed = False
        self.written = 0
        """Bytes handed to the loop."""
        self._mark: float = inf  # when so many bytes are written, unread output is counted again
        self._account: Account | None = None  # the peer's, where its unread output is counted
        self._patience = inf  # seconds the peer has to read it
        self._unread: Unread | None = None  # while much is unread
        self.corked = False
        """Set while a read is handled: messages sent meanwhile leave in one write afterwards."""
        self.blocked = False
        """Set while the operating system takes no more, because the peer does not read."""

    def attach(self, writer: asyncio.WriteTransport) -> None:
        """Begin to write."""
        self._writer = writer
        self._call_soon = asyncio.get_running_loop().call_soon
        writer.set_write_buffer_limits(high=self._much)
        self.flush()

    def charge(self, account: Account, patience: float) -> None:
        """Count what the peer does not read, and drop a peer that takes too long to read it."""
        self._account = account
        self._patience = patience
        self._mark = self.written + UNCOUNTED

    def put(self, message: bytes, about: "Outgoing | None" = None) -> None:
        """Take one message; a peer that leaves too much unread is dropped."""
        if self._closed:
            return
        self.messages.append(message)
        self._size += len(message)
        if self._size > self._much:
            self.flush()  # so that later senders in this iteration learn whether the peer keeps up
        elif self._scheduled is None and not self.corked and self._call_soon is not None:
            self._scheduled = self._call_soon(self.flush)
        if self.blocked:
            self.check_bound()

    def check_bound(self) -> None:
        """Report a peer that leaves too much unread."""
        if self.waiting > self._limit:
            self._overfull(DOES_NOT_READ)

    def flush(self) -> None:
        """Hand everything taken so far to the loop, in one write."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        writer = self._writer
        if not self.messages or writer is None or writer.is_closing():
            return
        data = b"".join(map(self._framer.frame, self.messages))
        self.messages.clear()
        self._size = 0
        writer.write(data)
        self.written += len(data)
        if self.written > self._mark:
            self.count_unread()

    def count_unread(self) -> None:
        """Count what is unread, if it is much."""
        if self._account is None or self._closed:
            return
        self._mark = self.written + UNCOUNTED
        much = self.waiting > UNCOUNTED
        if self._unread is not None:
            if much:
                self._unread.count()
            else:
                self._unread.close()
                self._unread = None
        elif much:
            self._unread = Unread(
                self._account,
                self._patience,
                lambda: self.waiting,
                lambda: self.written,
                self._overfull,
            )
            self._unread.count()

    @property
    def waiting(self) -> int:
        """How many bytes the operating system has not taken yet."""
        return 0 if self._writer is None else self._writer.get_write_buffer_size()

    @property
    def empty(self) -> bool:
        """Whether everything was handed to the operating system."""
        return self._writer is None or not (self.messages or self.waiting)

    def close(self) -> list[bytes]:
        """Take nothing more; return what was never handed to the loop, so was certainly not sent."""
        self._closed = True
        if self._unread is not None:
            self._unread.close()
            self._unread = None
        messages, self.messages = self.messages, []
        self._size = 0
        return messages


class _NoReceiver:
    """The receiver of a stream that has none yet."""

    def received(self, frames: list[Frame]) -> None: ...

    def ended(self) -> None: ...

    def lost(self, reason: Exception | None) -> None: ...

    def writable(self, flowing: bool) -> None: ...


class StreamProtocol(asyncio.Protocol):
    """A byte stream as the loop's protocol and as the channel of a connection, at once."""

    keeps_alive = False
    medium = "tcp"
    request: "RequestInfo | None" = None
    session_id: str | None = None
    account: Account | None = None  # the peer's, where its unfinished messages are counted
    _unfinished: Holding | None = None  # while much of a message has arrived

    def __init__(self, limits: Limits, framer: Framer | None = None) -> None:
        self.receiver: Receiver = _NoReceiver()
        self.framer: Framer = framer or NewlineFramer(limits.max_message)
        self.outbox = Outbox(self.framer, limits.max_outgoing, self._drop)
        self.send = self.outbox.put
        self.flush = self.outbox.flush
        self.finished = False

    @property
    def peer_address(self) -> str | None:
        """The address of the peer; none on streams other than sockets."""
        return None

    @property
    def paused(self) -> bool:
        """Whether the peer does not keep up with what it is sent."""
        return self.outbox.blocked

    # Reading

    def data_received(self, data: bytes) -> None:
        """Take what was read."""
        self.take_bytes(data)

    def take_bytes(self, data: bytes) -> int:
        """Cut bytes into messages and pass them on; return how many there were."""
        if self.finished:
            return 0
        outbox = self.outbox
        outbox.corked = True
        try:
            frames = self.framer.feed(data)
            if not frames or self._unfinished is not None:
                self.count_unfinished()
            self.receiver.received(frames)
        finally:
            outbox.corked = False
        if outbox.messages:
            outbox.flush()
        return len(frames)

    def tally(self, count: Callable[[int], None]) -> None:
        """Count the bytes that are read. Called before the stream is opened.

        Args:
            count: Called with the size of everything that is read.
        """
        take = self.take_bytes

        def counted(data: bytes) -> int:
            count(len(data))
            return take(data)

        self.take_bytes = counted  # type: ignore[method-assign]

    @property
    def written(self) -> int:
        """Bytes that were sent."""
        return self.outbox.written

    def count_unfinished(self) -> None:
        """Count the part of a message that has arrived, if it is much."""
        if self.account is None or self.finished:
            return
        held = self.framer.held
        if self._unfinished is None:
            if held <= UNCOUNTED:
                return
            self._unfinished = self.account.open("messages")
        if not self._unfinished.resize(held if held > UNCOUNTED else 0):
            self.no_room(self.account.refusal)

    def no_room(self, reason: str) -> None:
        """End the connection: there is no room for the message that is arriving."""
        raise NotImplementedError

    def eof_received(self) -> bool:
        """Keep writing: the peer may still read."""
        self.receiver.ended()
        return True

    # Writing

    def pause_writing(self) -> None:
        """Note that the peer does not keep up."""
        self.outbox.blocked = True
        self.outbox.count_unread()
        if self.finished:
            return
        self.receiver.writable(False)

    def resume_writing(self) -> None:
        """Note that the peer caught up."""
        self.outbox.blocked = False
        self.outbox.count_unread()
        self.receiver.writable(True)

    async def settle(self) -> None:
        """Write what is left, and wait as long as the peer keeps taking some of it."""
        clock = asyncio.get_running_loop().time
        outbox = self.outbox
        outbox.flush()
        left, since = outbox.waiting, clock()
        while not (self.finished or outbox.empty) and clock() < since + _PATIENCE:
            await asyncio.sleep(0.01)
            if outbox.waiting < left:
                left, since = outbox.waiting, clock()

    # Ending

    def _drop(self, reason: str) -> None:
        self.finish(LimitReached(reason))

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the stream."""
        self.finish(exc)

    def finish(self, reason: Exception | None) -> None:
        """Report the end, once."""
        if self.finished:
            return
        self.finished = True
        if self._unfinished is not None:
            self._unfinished.release()
        unsent = self.outbox.close()
        from mcpearl.transports.transport import ClientReceiver  # no start needs it

        if isinstance(self.receiver, ClientReceiver):
            self.receiver.unsent(unsent)
        self.receiver.lost(reason)


async def connect(address: "Address", protocol: asyncio.Protocol) -> None:
    """Connect `protocol` to an address, or raise `ConnectionLost` with the reason."""
    from mcpearl.net.addresses import Unreachable

    try:
        await address.dial(protocol)
    except Unreachable as error:
        raise ConnectionLost(str(error)) from None
