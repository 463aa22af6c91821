"""Faults on demand: what goes wrong between a client and its server, on any wire.

A fault stands in the transport of a client, between the wire and the client, and works on whole messages.
So a fault is the same in memory, on stdio, on sockets and over HTTP; what the wire itself can do wrong is
not tried this way.

>>> async with Client(faulty("server.py", slow(0.2), cut(after=3))) as client:
...     await client.call_tool("add", {"a": 1, "b": 2})
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from mcpearl.client.targets import Reachable, Tapped
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.framing import Frame
from mcpearl.transports.transport import (
    ClientReceiver,
    Outgoing,
    Receiver,
    Transport,
)
from mcpearl.transports.wrapped import WrappedTransport

Way = Literal["received", "sent"]
PassingMessage = Frame | Envelope


class Passing(NamedTuple):
    """A message on its way through a fault."""

    way: Way
    message: PassingMessage
    about: Outgoing | None = None

    @property
    def size(self) -> int:
        """How long the message is, in bytes."""
        if isinstance(self.message, bytes):
            return len(self.message)
        return len(msgspec.json.encode(self.message))


class Fault:
    """Something that goes wrong. Subclass it for faults of your own.

    One object may be used by several connections, one after the other: what it counts goes on, until
    `reset`.
    """

    def reset(self) -> None:
        """Forget what was counted: the plugin for pytest calls it before each test."""

    def pass_on(self, passing: Passing, line: "Line") -> None:
        """Do something with a message: by default, hand it on.

        Args:
            passing: The message.
            line: What is behind the fault.
        """
        line.forward(passing)

    def open(self) -> None:
        """Note that the client connects; raise `ConnectionLost` to refuse it."""


class Line(NamedTuple):
    """What a fault can do with a connection."""

    forward: Callable[[Passing], None]
    """Hand a message on to the next fault, and in the end to the client or the wire."""
    lose: Callable[[str], None]
    """End the connection, as if it broke; the text says why."""


def faulty(target: Reachable, *faults: Fault) -> Tapped:
    """Return a target for `Client` with faults between it and the client.

    Args:
        target: Whatever `Client` takes: a `Server`, a file, a command, an address.
        *faults: The faults; messages of the server pass the first one first.
    """
    for fault in faults:
        _refuse_other_than_fault(fault)
    return Tapped(target, lambda transport: FaultyTransport(transport, faults))


def _refuse_other_than_fault(given: Any) -> None:
    if not isinstance(given, Fault):
        hint = f"; write `{given.__name__}(…)`" if isinstance(given, type) else ""
        raise TypeError(f"{given!r} is not a fault{hint}")


# The faults


class slow(Fault):  # noqa: N801 (they are written like functions)
    """Every message takes a while longer. The order is kept.

    Args:
        seconds: How much longer.
        way: Which messages: those that the client receives, or those it sends.
    """

    def __init__(self, seconds: float, way: Way = "received") -> None:
        self.seconds = seconds
        self.way = way

    def pass_on(self, passing: Passing, line: Line) -> None:
        """Hand a message on later.

        Args:
            passing: The message.
            line: What is behind the fault.
        """
        if passing.way == self.way:
            asyncio.get_running_loop().call_later(self.seconds, line.forward, passing)
        else:
            line.forward(passing)


class _Counted(Fault):
    """A fault that happens to certain messages; each kind says what its arguments mean."""

    def __init__(
        self,
        after: int = 0,
        times: int | None = 1,
        way: Way = "received",
        method: str | None = None,
    ) -> None:
        self.after = after
        self.times = times
        self.way = way
        self.method = method
        self.happened = 0
        """How often it has happened."""
        self._passed = 0

    def reset(self) -> None:
        """Forget what was counted, and wait for as many messages again."""
        self.happened = 0
        self._passed = 0

    def pass_on(self, passing: Passing, line: Line) -> None:
        """Count a message, and let the fault happen to it when its time has come.

        Args:
            passing: The message.
            line: What is behind the fault.
        """
        if passing.way != self.way or not self._concerns(passing):
            self._leave(passing, line)
            return
        self._passed += self._measure(passing)
        if self._passed <= self.after or self.happened == self.times:
            self._leave(passing, line)
            return
        self.happened += 1
        self._happen(passing, line)

    def _concerns(self, passing: Passing) -> bool:
        return self.method is None or method_of(passing.message) == self.method

    def _measure(self, passing: Passing) -> int:
        """Return how much a message adds to the count."""
        return 1

    def _leave(self, passing: Passing, line: Line) -> None:
        """Handle a message that the fault does not concern."""
        line.forward(passing)

    def _happen(self, passing: Passing, line: Line) -> None:
        """Apply the fault to a message."""
        raise NotImplementedError


class cut(_Counted):  # noqa: N801
    """The connection breaks, with the message that was on its way. The client may reconnect.

    Args:
        after: How many messages pass before; with `bytes`, how many bytes.
        times: How often it happens; None for every time it can.
        way: Which messages are counted: those that the client receives, or those it sends.
        bytes: Count bytes instead of messages.
        method: Count only requests and notifications of this method.
    """

    def __init__(
        self,
        after: int = 0,
        times: int | None = 1,
        way: Way = "received",
        *,
        bytes: bool = False,
        method: str | None = None,
    ) -> None:
        super().__init__(after, times, way, method)
        self.bytes = bytes

    def _measure(self, passing: Passing) -> int:
        """Return how much a message adds to the count."""
        return passing.size if self.bytes else 1

    def _happen(self, passing: Passing, line: Line) -> None:
        """End the connection."""
        self._passed = 0
        line.lose("the connection was cut by a fault")


class crash(_Counted):  # noqa: N801
    """The server is gone: the connection breaks, and connecting again fails for a while.

    Args:
        after: How many messages pass before.
        refused: How many attempts to connect again fail.
        way: Which messages are counted.
        method: Count only requests and notifications of this method.
    """

    def __init__(
        self, after: int = 0, refused: int = 1, way: Way = "received", method: str | None = None
    ) -> None:
        super().__init__(after, 1, way, method)
        self.refused = refused
        self._down = 0

    def reset(self) -> None:
        """Forget what was counted; the server is there again."""
        super().reset()
        self._down = 0

    def _happen(self, passing: Passing, line: Line) -> None:
        """End the connection, and refuse new ones from now on."""
        self._down = self.refused
        line.lose("the server was crashed by a fault")

    def open(self) -> None:
        """Refuse to connect while the server is down."""
        if self._down:
            self._down -= 1
            raise ConnectionLost("the server was crashed by a fault, and is not back yet")


class freeze(_Counted):  # noqa: N801
    """After some messages nothing arrives any more, and the connection stays open.

    Args:
        after: How many messages pass before.
        way: Which messages are counted, and no longer arrive.
        method: Count only requests and notifications of this method; others pass.
    """

    def __init__(self, after: int = 0, way: Way = "received", method: str | None = None) -> None:
        super().__init__(after, None, way, method)
        self._held: list[tuple[Passing, Line]] = []
        self._thawed = False

    def reset(self) -> None:
        """Forget what was counted and held back; the fault is not over."""
        super().reset()
        self._held.clear()
        self._thawed = False

    def pass_on(self, passing: Passing, line: Line) -> None:
        """Hand a message on, if the fault is over.

        Args:
            passing: The message.
            line: What is behind the fault.
        """
        if self._thawed:
            line.forward(passing)
        else:
            super().pass_on(passing, line)

    def _happen(self, passing: Passing, line: Line) -> None:
        """Hold a message back."""
        if len(self._held) < _MOST_HELD:
            self._held.append((passing, line))

    def thaw(self) -> None:
        """Let everything that was held back arrive, and all that follows."""
        self._thawed = True
        held, self._held = self._held, []
        for passing, line in held:
            line.forward(passing)


_MOST_HELD = 10_000  # messages that a frozen line keeps; the rest is dropped


class drop(_Counted):  # noqa: N801
    """A message gets lost.

    Args:
        after: How many messages pass before.
        times: How many are lost; None for all from then on.
        way: Which messages.
        method: Only requests and notifications of this method.
    """

    def _happen(self, passing: Passing, line: Line) -> None:
        """Hand nothing on."""


class garble(_Counted):  # noqa: N801
    """A message arrives as something that is not JSON: half of it.

    Args:
        after: How many messages pass before.
        times: How many are garbled; None for all from then on.
        way: Which messages.
        method: Only requests and notifications of this method.
    """

    def _happen(self, passing: Passing, line: Line) -> None:
        """Hand on the first half of the message."""
        whole = encoded(passing.message)
        line.forward(passing._replace(message=whole[: len(whole) // 2]))


class duplicate(_Counted):  # noqa: N801
    """A message arrives twice.

    Args:
        after: How many messages pass before.
        times: How many arrive twice; None for all from then on.
        way: Which messages.
        method: Only requests and notifications of this method.
    """

    def _happen(self, passing: Passing, line: Line) -> None:
        """Hand the message on, twice."""
        line.forward(passing)
        line.forward(passing)


class reorder(_Counted):  # noqa: N801
    """A message arrives after the one that follows it.

    Args:
        after: How many messages pass before.
        times: How often two messages change places; None for always.
        way: Which messages.
        method: Only requests and notifications of this method are late.
    """

    _late: tuple[Passing, Line] | None = None

    def reset(self) -> None:
        """Forget what was counted, and the message that is late."""
        super().reset()
        self._late = None

    def pass_on(self, passing: Passing, line: Line) -> None:
        """Hand on a message, and the one that it overtook.

        Args:
            passing: The message.
            line: What is behind the fault.
        """
        if self._late is not None and passing.way == self.way:
            (late, its_line), self._late = self._late, None
            line.forward(passing)
            its_line.forward(late)
        else:
            super().pass_on(passing, line)

    def _happen(self, passing: Passing, line: Line) -> None:
        """Hold a message back until the next one has passed."""
        self._late = passing, line


# The transport


def encoded(message: PassingMessage) -> bytes:
    """Return a message as bytes.

    Args:
        message: The message, which a transport may have decoded.
    """
    return message if isinstance(message, bytes) else msgspec.json.encode(message)


def method_of(message: PassingMessage) -> str | None:
    """Return the method of a message; None for an answer, and for what is not a message.

    Args:
        message: The message.
    """
    try:
        found: Any = msgspec.json.decode(encoded(message))
    except msgspec.DecodeError:
        return None
    return found.get("method") if isinstance(found, dict) else None


class FaultyTransport(WrappedTransport):
    """The transport of a client with faults in it.

    Args:
        inner: The transport that carries the messages.
        faults: What goes wrong, from the server to the client.
    """

    def __init__(self, inner: Transport, faults: Sequence[Fault]) -> None:
        super().__init__(inner)
        self._faults = faults
        self._receiver: ClientReceiver | None = None
        self._over = False
        self._closing: asyncio.Task[None] | None = None
        # What each fault hands its messages on to, for messages of both ways.
        self._into_client = self._chain(faults, self._deliver)
        self._into_wire = self._chain(faults[::-1], self._emit)

    def _chain(
        self, faults: Sequence[Fault], end: Callable[[Passing], None]
    ) -> Callable[[Passing], None]:
        step = end
        for fault in reversed(faults):
            step = self._link(fault, Line(step, self._lose))
        return step

    def _link(self, fault: Fault, line: Line) -> Callable[[Passing], None]:
        def step(passing: Passing) -> None:
            if not self._over:
                fault.pass_on(passing, line)

        return step

    async def open(self, receiver: Receiver) -> None:
        """Open the transport, with the faults between it and its receiver."""
        assert isinstance(receiver, ClientReceiver)
        for fault in self._faults:
            fault.open()
        self._receiver = receiver
        await self._inner.open(_FaultyReceiver(self, receiver))

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        """Send a message through the faults."""
        self._into_wire(Passing("sent", message, about))

    def _emit(self, passing: Passing) -> None:
        if not self._over:
            self._inner.send(encoded(passing.message), passing.about)

    def received(self, frames: Sequence[PassingMessage]) -> None:
        """Take messages of the server through the faults."""
        if not frames and self._receiver is not None and not self._over:
            self._receiver.received(frames)  # a sign of life
        for frame in frames:
            self._into_client(Passing("received", frame))

    def _deliver(self, passing: Passing) -> None:
        if not self._over and self._receiver is not None:
            self._receiver.received([passing.message])

    def _lose(self, reason: str) -> None:
        if self._over or self._receiver is None:
            return
        self._over = True
        self._closing = asyncio.ensure_future(self._inner.close())
        # Not in the middle of what the client is sending or receiving, as wires do it.
        loop = asyncio.get_running_loop()
        loop.call_soon(self._receiver.lost, ConnectionLost(reason, maybe_executed=True))

    def lost(self, reason: Exception | None) -> None:
        """Note that the wire ended by itself."""
        if not self._over and self._receiver is not None:
            self._over = True
            self._receiver.lost(reason)

    async def close(self) -> None:
        """Close the transport."""
        if self._closing is not None:
            await self._closing
        await super().close()


class _FaultyReceiver:
    """Stands before the receiver of a faulty transport."""

    def __init__(self, faulty: FaultyTransport, receiver: ClientReceiver) -> None:
        self.received = faulty.received
        self.lost = faulty.lost
        self.ended = receiver.ended
        self.writable = receiver.writable
        self.failed = receiver.failed
        self.unsent = receiver.unsent
        self.held = receiver.held
