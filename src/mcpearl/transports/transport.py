"""The seam between a wire and a connection: what a transport is, and what it reports to.

Adding a wire means writing one class with the shape of `Transport`. Messages are handed over by
function call, a list per read, in order; nothing is queued in between.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.framing import Frame
from mcpearl.types.base import RequestId

if TYPE_CHECKING:
    from mcpearl.net.http_server.request import RequestInfo
    from mcpearl.types.tools import Tool
else:
    RequestInfo = Tool = Any  # a server on standard streams loads neither HTTP nor tools


class Outgoing(Struct, frozen=True, gc=False):
    """What a client knows about a message it sends, so that no transport has to parse the bytes.

    A request has `method` and `id`, a notification `method` only, an answer neither.
    """

    method: str | None = None
    id: RequestId | None = None
    params: Any = None
    """The params of a request, as their struct."""
    version: str | None = None
    """The protocol version of the message; None before one is agreed."""
    modern: bool = False
    """Whether the message belongs to no session."""
    cancels: RequestId | None = None
    """The request that `notifications/cancelled` gives up."""


class Receiver(Protocol):
    """The side of a connection that takes what a transport read. Its methods never raise."""

    def received(self, frames: list[Frame]) -> None:
        """Take whole messages; a message that could not be read is replaced by an error.

        Args:
            frames: The messages, in order. An empty list means that part of a message arrived.
        """
        ...

    def ended(self) -> None:
        """Note that the peer will send nothing more, though it may still read."""
        ...

    def lost(self, reason: Exception | None) -> None:
        """Note that the connection is gone. Called exactly once.

        Args:
            reason: What ended it; None for an orderly end.
        """
        ...

    def writable(self, flowing: bool) -> None:
        """Note that the peer stopped reading, or caught up again.

        Args:
            flowing: Whether the peer reads.
        """
        ...


@runtime_checkable
class ClientReceiver(Receiver, Protocol):
    """The receiver of a client, which also learns what happened to single requests."""

    def received(self, frames: Sequence[Frame | Envelope]) -> None:
        """Take messages; those the transport had to decode are handed over decoded."""
        ...

    def failed(self, request_id: RequestId, error: Exception) -> None:
        """Note that the exchange of one request broke; the connection goes on."""
        ...

    def unsent(self, messages: list[bytes]) -> None:
        """Note, before `lost`, which messages were taken but never sent."""
        ...

    def held(self, request_id: RequestId | None, holding: bool) -> None:
        """Note that a request, or connecting (None), begins or stops waiting for authorization."""
        ...


class Channel(Protocol):
    """The sending side of one connection to one peer. It is the `Outlet` of what is sent on it."""

    keeps_alive: bool = False
    """Whether the wire itself notices a dead peer, so that the connection sends no pings."""
    medium: str = "other"
    """What the messages travel on: `stdio`, `tcp`, `unix`, `websocket`, `http` or `memory`."""

    @property
    def peer_address(self) -> str | None:
        """The address of the peer, where the wire knows one."""
        return None

    @property
    def request(self) -> "RequestInfo | None":
        """The HTTP request that opened the connection, where it began with one."""
        return None

    @property
    def session_id(self) -> str | None:
        """The id of the session, where the wire has one."""
        return None

    @property
    def written(self) -> int:
        """Bytes that were sent, where the wire counts them."""
        return 0

    def tally(self, count: Callable[[int], None]) -> None:
        """Count the bytes that are read, where that is possible. Called before the transport is opened.

        Args:
            count: Called with the size of everything that is read.
        """
        return

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        """Take one message to be sent in order. After the end of the connection it is silently dropped.

        Args:
            message: The encoded message.
            about: What the sender knows about it. Clients always pass it, servers never do.
        """
        ...

    def flush(self) -> None:
        """Send what was taken now, instead of at the end of this loop iteration."""
        return

    def pause(self) -> None:
        """Stop reading: the receiver has enough in hand."""
        ...

    def resume(self) -> None:
        """Read again."""
        ...

    async def close(self) -> None:
        """Send what was taken, then end the connection and release everything. Idempotent."""
        ...


class Transport(Channel, Protocol):
    """A channel that this side opens, and that hands what it reads to a receiver.

    Subclass it for what most wires do not have: a subclass inherits `keeps_alive = False`, a `flush`
    that does nothing, and no address, request, session id or count of bytes.
    """

    async def open(self, receiver: Receiver) -> None:
        """Connect and begin to hand messages to `receiver`.

        Args:
            receiver: Takes the messages; a `ClientReceiver` on the client's side.

        Raises:
            ConnectionLost: The peer cannot be reached.
        """
        ...


@runtime_checkable
class Announcing(Protocol):
    """A transport of a session that several processes have: an announcement must be sent by only one."""

    def announce(self, message: bytes, position: str | None = None) -> None:
        """Send an announcement once, although every process that has the session announces it.

        Args:
            message: The announcement.
            position: Its position on the bus, if the bus stores messages.
        """
        ...


@runtime_checkable
class Talkative(Protocol):
    """A transport to a process that may explain itself outside the protocol."""

    @property
    def last_words(self) -> str:
        """What the process last wrote to stderr."""
        ...


@runtime_checkable
class ToolAware(Protocol):
    """A transport that repeats parameters of tool calls outside the message."""

    def learn_tools(self, tools: list[Tool]) -> list[Tool]:
        """Note the schemas of listed tools; return the tools that can be called."""
        ...
