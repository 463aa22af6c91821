"""One stream socket as a transport: TCP, TLS and Unix, the client's side and the server's.

The object is the loop's protocol and the transport at once, so that nothing stands between what is
read and who receives it. Where the socket comes from is an address's affair, who its client is a
reception's.
"""

import asyncio
from typing import Any, Protocol, cast

from mcpearl.net.addresses import Address
from mcpearl.net.fairness import AT_ONCE, Backlog, Fairness
from mcpearl.net.tls import subject_of
from mcpearl.protocol import codec
from mcpearl.protocol.errors import LimitReached, McpError
from mcpearl.protocol.framing import Frame, Framer, framer_named
from mcpearl.protocol.limits import Limits
from mcpearl.transports.stream import StreamProtocol, connect
from mcpearl.transports.transport import Receiver
from mcpearl.types.jsonrpc import INTERNAL_ERROR

_LINGER = 1.0  # seconds a peer has to read the last of what it was sent, and close its side


class Acceptor(Protocol):
    """What a server's socket asks of the server."""

    limits: Limits
    turns: Fairness

    def enter(self, transport: "SocketServer") -> bool:
        """Count a client that has just connected; False for one that is one too many."""
        ...

    def receive(self, transport: "SocketServer", principal: Any) -> Receiver:
        """Give the side that takes this client's messages."""
        ...

    def leave(self, transport: "SocketServer") -> None:
        """Note that the socket is closed."""
        ...


class _Nobody:
    """The receiver of a socket before anybody listens."""

    def received(self, frames: list[Frame]) -> None: ...

    def ended(self) -> None: ...

    def lost(self, reason: Exception | None) -> None: ...

    def writable(self, flowing: bool) -> None: ...


class SocketTransport(StreamProtocol):
    """What both sides share."""

    wire: asyncio.Transport

    def __init__(self, limits: Limits, framing: str | Framer) -> None:
        if isinstance(framing, str):
            framing = framer_named(framing, limits.max_message)
        super().__init__(_Nobody(), limits, framing)
        self.opened_at = 0.0  # by the loop's clock
        self.spoke_at = 0.0  # when something of a message was last read
        self.has_spoken = False  # whether a whole message has come
        self.is_gone = True  # there is no socket yet, or no more
        self._now: Any = None  # the loop's clock
        self._gone: asyncio.Future[None] | None = None  # there while somebody waits for the end

    # The loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.wire = cast("asyncio.Transport", transport)
        self._now = asyncio.get_running_loop().time
        self.opened_at = self.spoke_at = self._now()
        self.is_gone = False
        self.outbox.attach(self.wire)

    def data_received(self, data: bytes) -> None:
        """Take what was read."""
        self.take_bytes(data)

    def take_bytes(self, data: bytes) -> int:
        """Cut bytes into messages and pass them on; how many that were."""
        if self.finished:
            return 0
        self.spoke_at = self._now()
        frames = self.framer.feed(data)
        if frames:
            self.has_spoken = True
        self.receiver.received(frames)
        return len(frames)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is closed."""
        self.is_gone = True
        super().connection_lost(exc)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def finish(self, reason: Exception | None) -> None:
        """Report the end, once. A peer that is dropped is given no further time."""
        super().finish(reason)
        if isinstance(reason, LimitReached):
            self.wire.abort()

    # The transport's side

    def flush(self) -> None:
        """Write what was taken."""
        self.outbox.flush()

    def pause(self) -> None:
        """Stop reading."""
        if not (self.is_gone or self.wire.is_closing()):
            self.wire.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if not (self.is_gone or self.wire.is_closing()):
            self.wire.resume_reading()

    async def until_gone(self, patience: float) -> None:
        """Wait until the socket is closed; close it when the peer takes too long over it."""
        if self.is_gone:
            return
        self._gone = self._gone or asyncio.get_running_loop().create_future()
        await asyncio.wait((self._gone,), timeout=patience)
        if not self._gone.done():
            self.wire.abort()
            await asyncio.wait((self._gone,), timeout=_LINGER)


class SocketClient(SocketTransport):
    """The client's side.

    >>> transport = SocketClient(TcpAddress("127.0.0.1", 9000), Limits())
    """

    def __init__(self, address: Address, limits: Limits, framing: str | Framer = "newline") -> None:
        super().__init__(limits, framing)
        self.address = address

    async def open(self, receiver: Receiver) -> None:
        """Connect."""
        self.receiver = receiver
        await connect(self.address, self)

    def eof_received(self) -> bool:
        """Close: a server that says nothing more is none."""
        if not self.finished:
            self.receiver.ended()
        return False

    async def close(self) -> None:
        """Send what was taken, then close."""
        if not self.is_gone:
            await self.settle()
            self.wire.close()
            await self.until_gone(_LINGER)


class SocketServer(SocketTransport):
    """The server's side of one client, made when that client connects."""

    def __init__(self, reception: Acceptor, framing: str | Framer = "detect") -> None:
        super().__init__(reception.limits, framing)
        self.reception = reception
        self._has_ended = False  # whether the client said that it will send nothing more
        self._unread = Backlog()
        self._is_wanted = True  # whether the receiver takes messages
        self._call_soon: Any = None  # the loop's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room for one more."""
        super().connection_made(transport)
        self._call_soon = asyncio.get_running_loop().call_soon
        if self.reception.enter(self):
            self.take_in()

    def take_in(self) -> None:
        """Let the client talk."""
        self.receiver = self.reception.receive(self, subject_of(self.wire))

    # Reading, in turns

    def data_received(self, data: bytes) -> None:
        """Take what was read: little at once, much in pieces, so that others have their turn."""
        if len(data) <= AT_ONCE and not self._unread:
            turns = self.reception.turns
            turns.speaker = self
            turns.spoken += 1
            self.take_bytes(data)
            return
        self._unread.put(data)
        self.wire.pause_reading()
        self._take_turn()

    def _take_turn(self) -> None:
        unread = self._unread
        if self.is_gone or not self._is_wanted or not unread:
            return
        if not unread.begin(self.reception.turns, self):
            self._call_soon(self._take_turn)
            return
        # Parts of a message are no work; a turn is over when something was to be done.
        while not self.take_bytes(unread.take()) and unread:
            pass
        if unread:
            self._call_soon(self._take_turn)
        elif self._is_wanted:
            super().resume()

    def pause(self) -> None:
        """Stop reading."""
        self._is_wanted = False
        super().pause()

    def resume(self) -> None:
        """Read again, after what was read already."""
        self._is_wanted = True
        if self._unread:
            self._call_soon(self._take_turn)
        else:
            super().resume()

    # Coming and going

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the client go."""
        super().connection_lost(exc)
        self.reception.leave(self)

    def eof_received(self) -> bool:
        """Keep writing where that is possible: the client may still read."""
        self._has_ended = True
        if self.finished:
            return False
        self.receiver.ended()
        return self.wire.can_write_eof()

    async def open(self, receiver: Receiver) -> None:
        """Begin to hand messages over; the socket is open since this exists."""
        self.receiver = receiver

    def refuse(self, reason: str) -> None:
        """Tell the client why it is not served, and have it go."""
        self.send(codec.encode_error(None, McpError(INTERNAL_ERROR, reason)))
        self.say_no_more(None)

    def say_no_more(self, reason: Exception | None) -> None:
        """End the conversation, but let the client read what was said before the socket goes.

        Closing at once with something unread would have the system throw away what it has not sent.
        """
        if self.finished:
            return
        self.outbox.flush()
        self.finish(reason)
        if self._has_ended:
            self.wire.close()
        else:
            self.resume()
            self.end_writing()
        asyncio.get_running_loop().call_later(_LINGER, self.wire.abort)

    def end_writing(self) -> None:
        """Show the client that nothing more will come."""
        if self.wire.can_write_eof():
            self.wire.write_eof()
        else:
            self.wire.close()

    async def close(self) -> None:
        """Send what was taken, then close."""
        await self.settle()
        self.say_no_more(None)
        await self.until_gone(2 * _LINGER)
