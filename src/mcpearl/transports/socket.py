"""One stream socket as a transport: TCP, TLS and Unix, the client's side and the server's.

The object is the loop's protocol and the transport at once, so that nothing stands between a read and
the receiver. An `Address` decides where a client's socket comes from; an `Acceptor` decides whether
the client of a server's socket is served.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, cast

from mcpearl.net.addresses import Address, is_unix
from mcpearl.net.fairness import AT_ONCE, Backlog, Fairness
from mcpearl.net.tls import subject_of
from mcpearl.protocol import codec
from mcpearl.protocol.errors import LimitReached, McpError
from mcpearl.protocol.framing import Framer, framer_named
from mcpearl.protocol.limits import Limits
from mcpearl.runtime.budget import CONNECTION, UNCOUNTED, Account, Holding
from mcpearl.transports.stream import StreamProtocol, connect
from mcpearl.transports.transport import Receiver
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.runtime.congestion import Congestion

_LINGER = 1.0  # seconds a peer has to read the rest and close its side


class Acceptor(Protocol):
    """What a server's socket needs from the server."""

    limits: Limits
    turns: Fairness

    def enter(self, transport: "SocketServer") -> bool:
        """Count a client that has just connected; return False when there are too many."""
        ...

    def receive(self, transport: "SocketServer", principal: Any) -> Receiver:
        """Return the receiver of this client's messages."""
        ...

    def leave(self, transport: "SocketServer") -> None:
        """Note that the socket is closed."""
        ...


class SocketTransport(StreamProtocol):
    """The part that both sides share."""

    wire: asyncio.Transport

    def __init__(self, limits: Limits, framing: str | Framer) -> None:
        if isinstance(framing, str):
            framing = framer_named(framing, limits.max_message)
        super().__init__(limits, framing)
        self.opened_at = 0.0  # by the loop's clock
        self.spoke_at = 0.0  # when part of a message was last read
        self.has_spoken = False  # whether a whole message has arrived
        self.is_gone = True  # the socket is not open yet, or closed
        self._now: Any = None  # the loop's clock
        self._gone: asyncio.Future[None] | None = None  # set while `until_gone` waits

    # The loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the socket, and when it was opened."""
        self.wire = cast("asyncio.Transport", transport)
        self._now = asyncio.get_running_loop().time
        self.opened_at = self.spoke_at = self._now()
        self.is_gone = False
        self.outbox.attach(self.wire)
        if is_unix(self.wire):
            self.medium = "unix"

    def take_bytes(self, data: bytes) -> int:
        """Cut bytes into messages and pass them on; return how many there were."""
        self.spoke_at = self._now()
        count = super().take_bytes(data)
        if count:
            self.has_spoken = True
        return count

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is closed."""
        self.is_gone = True
        super().connection_lost(exc)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def finish(self, reason: Exception | None) -> None:
        """Report the end, once. A peer that is dropped gets no time to read the rest."""
        super().finish(reason)
        if isinstance(reason, LimitReached):
            self.wire.abort()

    # The transport's side

    def pause(self) -> None:
        """Stop reading."""
        if not (self.is_gone or self.wire.is_closing()):
            self.wire.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if not (self.is_gone or self.wire.is_closing()):
            self.wire.resume_reading()

    async def until_gone(self, patience: float) -> None:
        """Wait until the socket is closed; abort it when the peer takes too long."""
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

    Args:
        address: Where the server is.
        limits: Bounds of the connection.
        framing: `newline`, `content-length`, `detect`, or a framer.
    """

    def __init__(self, address: Address, limits: Limits, framing: str | Framer = "newline") -> None:
        super().__init__(limits, framing)
        self.address = address

    async def open(self, receiver: Receiver) -> None:
        """Connect."""
        self.receiver = receiver
        await connect(self.address, self)

    def eof_received(self) -> bool:
        """Close: a server that sends nothing more cannot answer."""
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
        self._has_ended = False  # whether the client will send nothing more
        self._unread = Backlog()
        self._read_at = 0.0  # when `_unread` was read
        self._backlog: Holding | None = None  # for what was read at once, if it was much
        self._in_line = False  # whether this client waits in a line, if load is shed
        self._is_wanted = True  # whether the receiver wants messages
        self._is_read = True  # whether the socket is being read
        self._call_soon: Any = None  # the loop's
        self._charged: Holding | None = None  # for the connection itself

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve the client, if there is room for one more."""
        super().connection_made(transport)
        self._call_soon = asyncio.get_running_loop().call_soon
        if self.reception.enter(self):
            self.take_in()

    @property
    def peer_address(self) -> str | None:
        """The address of the client; None on a Unix socket, which has none."""
        name = self.wire.get_extra_info("peername")
        return name[0] if isinstance(name, tuple) else None

    def take_in(self) -> None:
        """Begin to pass on what the client sends."""
        self.receiver = self.reception.receive(self, subject_of(self.wire))

    def charge(self, account: Account, patience: float) -> None:
        """Count what is held for this client; `patience` is how long it may take to read.

        Raises:
            NoRoom: There is no room for a connection of this client.
        """
        self._charged = account.hold("connections", CONNECTION)
        self.account = account
        self.outbox.charge(account, patience)

    def no_room(self, reason: str) -> None:
        """Send the client the reason, and end the connection."""
        self.refuse(reason)

    # Reading, in turns

    def data_received(self, data: bytes) -> None:
        """Take what was read. Much is handled in pieces, so that other clients get their turn."""
        turns = self.reception.turns
        congestion = turns.congestion
        if (
            len(data) <= AT_ONCE
            and not self._unread
            and (congestion is None or not congestion.crowded)
        ):
            turns.speaker = self
            turns.spoken += 1
            self.take_bytes(data)
            return
        waits = bool(self._unread)
        self._unread.put(data)
        if waits or congestion is None or len(data) > AT_ONCE:
            self._is_read = False
            self.wire.pause_reading()
        if len(data) > UNCOUNTED and not self._count_backlog(len(data)):
            return
        if congestion is None:
            self._take_turn()
        elif not waits:
            self._read_at = congestion.now()
            self._wait_in(congestion)

    def _count_backlog(self, size: int) -> bool:
        """Count what waits for its turn. If there is no room, end the connection and return False."""
        if self.account is None:
            return True
        if self._backlog is None:
            self._backlog = self.account.open("messages")
        if self._backlog.resize(size):
            return True
        self._unread = Backlog()
        self.no_room(self.account.refusal)
        return False

    def _take_turn(self) -> None:
        unread = self._unread
        if self.is_gone or not self._is_wanted or not unread:
            return
        if not unread.begin(self.reception.turns, self):
            self._call_soon(self._take_turn)
            return
        self._take_piece()
        if unread or self._is_wanted:
            self._go_on()

    def _take_piece(self) -> None:
        """Handle at least one whole message; taking only a part of one costs hardly any work."""
        unread = self._unread
        while not self.take_bytes(unread.take()) and unread:
            pass

    def _wait_in(self, congestion: "Congestion") -> None:
        """Wait for a turn in the line of this client. What was read together is equally old."""
        if self._in_line:
            return
        self._in_line = True
        peer = self if self.account is None else self.account
        congestion.put(peer, self._take_turn_of, congestion, self._read_at, more=True)

    def _take_turn_of(self, congestion: "Congestion") -> None:
        self._in_line = False
        unread = self._unread
        if self.is_gone or not self._is_wanted or not unread:
            return
        unread.begin_in_line(self.reception.turns, self)
        self._take_piece()
        if self._is_wanted:
            self._go_on()

    def _go_on(self) -> None:
        """Handle what was read already, then read again."""
        congestion = self.reception.turns.congestion
        if not self._unread:
            if self._backlog is not None:
                self._backlog.release()
            if not self._is_read:
                self._is_read = True
                super().resume()
        elif congestion is None:
            self._call_soon(self._take_turn)
        else:
            self._wait_in(congestion)

    def pause(self) -> None:
        """Stop reading."""
        self._is_wanted = self._is_read = False
        super().pause()

    def resume(self) -> None:
        """Read again, after what was read already."""
        self._is_wanted = True
        congestion = self.reception.turns.congestion
        if congestion is not None:
            self._read_at = congestion.now()  # it was not the load that made it wait
        self._go_on()

    # Coming and going

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the client."""
        super().connection_lost(exc)
        for holding in (self._charged, self._backlog):
            if holding is not None:
                holding.release()
        self.reception.leave(self)

    def eof_received(self) -> bool:
        """Keep writing where the wire allows it: the client may still read."""
        self._has_ended = True
        if self.finished:
            return False
        self.receiver.ended()
        return self.wire.can_write_eof()

    async def open(self, receiver: Receiver) -> None:
        """Begin to pass messages on; the socket has been open from the start."""
        self.receiver = receiver

    def refuse(self, reason: str) -> None:
        """Send the client the reason why it is not served, then end the connection."""
        self.send(codec.encode_error(None, McpError(INTERNAL_ERROR, reason)))
        self.say_no_more(None)

    def say_no_more(self, reason: Exception | None) -> None:
        """End the connection, but let the client read the rest before the socket is closed.

        Closing at once, with input unread, would make the system discard unsent output.
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
        """Signal the end of the output to the client."""
        if self.wire.can_write_eof():
            self.wire.write_eof()
        else:
            self.wire.close()

    async def close(self) -> None:
        """Send what was taken, then close."""
        await self.settle()
        self.say_no_more(None)
        await self.until_gone(2 * _LINGER)
