"""What comes out of an end when a message goes in: plain records, told apart by their class.

`Call` is a request in the form that both eras share: a method, typed params, the caller. The
connection that received it attaches the `Outlet` through which it is answered.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from mcpearl.protocol import codec
from mcpearl.protocol.errors import answer_too_large, no_room_for_answer
from mcpearl.protocol.pending import PendingRequest
from mcpearl.protocol.versions import Version
from mcpearl.types.base import Implementation, RequestId
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.jsonrpc import ErrorObject

if TYPE_CHECKING:

    class Outlet(Protocol):
        """Where an answer, and what belongs to it, goes: a connection, or one response stream."""

        @property
        def address(self) -> str | None:
            """The address of the peer, where the wire has one."""
            ...

        @property
        def medium(self) -> str:
            """What the messages travel on, as `Channel.medium` has it."""
            ...

        @property
        def request_headers(self) -> Mapping[bytes, bytes]:
            """The headers of the HTTP request the answer belongs to, by name in lower case; or none."""
            ...

        @property
        def session_id(self) -> str | None:
            """Identifies the legacy session; None where there is no session."""
            ...

        def send(self, message: bytes) -> None:
            """Hand over one message; it leaves in order, as soon as the wire takes it."""
            ...

        def finish(self, message: bytes, refused: bool = False) -> None:
            """Hand over the answer; `refused` when the request was not dispatched."""
            ...

        async def drained(self) -> None:
            """Wait while the peer has too much to read."""
            ...

        def send_away(self, retry_ms: int) -> None:
            """Let the reader of a response disconnect and come back for the rest, if possible."""
            ...
else:
    Outlet = Any  # making a protocol takes time at each start


class Caller:
    """The client that asks: one per legacy session, or one per way a modern client presents itself."""

    __slots__ = ("capabilities", "client", "log_level", "principal", "session", "version")

    def __init__(
        self,
        version: Version,
        client: Implementation | None,
        capabilities: ClientCapabilities,
        log_level: str | None = None,
        principal: Any = None,
    ) -> None:
        self.version = version
        self.client = client
        self.capabilities = capabilities
        self.log_level = log_level  # modern: of the request; legacy: as last set in the session
        self.principal = principal
        self.session: Any = None  # of a legacy client on a server: the application's handle on it

    def brought_by(self, principal: Any) -> "Caller":
        """Return the same caller with another principal."""
        caller = Caller(self.version, self.client, self.capabilities, self.log_level, principal)
        caller.session = self.session
        return caller


Hold = Callable[[int], bool]
"""Counts how many bytes are held; returns False when there is no room for so many."""


class Batch:
    """The answers of one batch, held until the last of them is there.

    Args:
        limit: Bytes its answers may have together. One that does not fit becomes an error.
        hold: Counts these bytes.
    """

    __slots__ = ("_hold", "_limit", "_parts", "_size", "open")

    def __init__(self, limit: int, hold: Hold) -> None:
        self.open = 0
        self._limit = limit
        self._hold = hold
        self._size = 0
        self._parts: list[bytes] = []  # the array so far, with its commas, without its end

    def add(self, answer: bytes) -> None:
        """Hold an answer, whatever its size."""
        self._size += len(answer)
        self._parts += (b"," if self._parts else b"[", answer)

    def fitted(self, answer: bytes, id: RequestId | None) -> bytes:
        """Return the answer of a call, or an error in its place if there is no room for it."""
        if self._size + len(answer) > self._limit:
            return codec.encode_error(id, answer_too_large(len(answer), self._limit))
        if not self._hold(self._size + len(answer)):
            return codec.encode_error(id, no_room_for_answer(len(answer)))
        return answer

    def close(self, answer: bytes | None, id: RequestId | None = None) -> bytes | None:
        """Add the answer of a call, or None if it gets none; return the array after the last call."""
        self.open -= 1
        if answer is not None:
            self.add(self.fitted(answer, id))
        if self.open:
            return None
        self._hold(0)
        if not self._parts:
            return None
        parts, self._parts = self._parts, []
        parts.append(b"]")
        return b"".join(parts)


class Encoded(Struct, frozen=True):
    """A result whose JSON object is encoded already: it is sent without being read again."""

    body: bytes
    complete: bool = False
    """Whether it carries `resultType` and the server's `_meta` already, or needs neither."""


class EncodedToolResult(Encoded, frozen=True):
    """The encoded `CallToolResult` of a tool that succeeded, the same in every version."""


class Call(Struct, eq=False):
    """A request that was admitted and waits to be answered, exactly once."""

    id: RequestId
    method: str
    params: Any
    """The params as the method's type."""
    raw: Raw | bytes
    """The params as they came."""
    caller: Caller
    progress_token: RequestId | None = None
    batch: Batch | None = None
    key: Any = None
    """Identifies the call while it is in flight: its id, where all ids are of one peer."""
    outlet: Any = None
    """The `Outlet`, attached by the connection that received it."""
    work: Any = None
    """The task that runs it, attached by the connection that started it."""
    rounds: Any = None
    """Keeps the client's answers to questions of this call; attached by its context."""
    answered: Any = None
    """A future that is done once the call is answered, even if its handler continues."""
    run: Any = None
    """The `TaskRun` of a tool that is a task, or the `Candidate` that may become one."""
    recorded: Any = None
    """Run, number and start time of a call whose receipt has a begin and no end yet."""
    failed: bool = False
    """Whether it was answered with an error."""
    noted: Any = None
    """What the observer, if there is one, noted at the start: by default the monotonic time."""
    read: float = 0.0
    """The monotonic time at which it was read; 0 if that is not known."""


def as_sent(call: Call, answer: bytes, largest: int) -> bytes:
    """Return an answer, or the error that is sent in its place if it is too large."""
    if call.batch is not None:
        return call.batch.fitted(answer, call.id)
    if len(answer) > largest:
        return codec.encode_error(call.id, answer_too_large(len(answer), largest))
    return answer


class Notice(Struct, gc=False):
    """A notification for the layer above."""

    method: str
    params: Any


class Answer(Struct):
    """The outcome of a request of ours: `result` or `error`, never both."""

    entry: PendingRequest
    result: Raw | None = None
    error: ErrorObject | None = None


class Cancel(Struct):
    """The peer no longer wants the answer to this call."""

    call: Call
    reason: str | None = None
    message: bytes | None = None
    """The answers of its batch, when this call was the last one they waited for."""


class Reply(Struct):
    """Bytes to send back at once: this layer has answered or refused the message."""

    message: bytes
    refused: bool = False
    method: str = ""
    """The method of the request; empty if it could not be read, and for the answers of a batch."""
    request: Any = None
    """The `Envelope` of the request; None where there is none."""


class Opened(Struct):
    """A server's end received `initialize`: the bytes to answer with. A notification follows."""

    message: bytes
    request: Any = None
    """The `Envelope` of the request."""


class Ready(Struct):
    """The session is ready: from now on every message is allowed."""


class Ignored(Struct):
    """Nothing to do, and why."""

    reason: str


class Many(Struct):
    """The events of one batch, in order."""

    events: "list[Event]"
    replied: list[Reply] = []
    """Replies that are part of the answer of the batch: there is nothing to send for them."""


Event = Call | Notice | Answer | Cancel | Reply | Opened | Ready | Ignored | Many
