"""What a server or client reports to its observers: calls, connections, sessions, and limits reached.

An observer is set when the server or client is created. Without one, calls do no work for it. The module
`observers` does the reporting.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct, field

from mcpearl.runtime import clock

Outcome = Literal["result", "tool_error", "error", "cancelled"]
Counters = Callable[[], Mapping[str, int]]
Bound = Literal[
    "Isolate.queue",
    "Limits.max_in_flight",
    "Limits.max_outgoing",
    "Limits.max_subscriptions",
    "Server.rate",
    "Server.shedding",
    "TaskBounds.max_journal",
    "TaskBounds.max_result",
    "max_connections",
    "max_held",
    "max_requests",
    "max_sessions",
    "max_streams",
    "tasks",
    "threads",
    "tool.concurrency",
    "tool.rate",
]
"""The limits that observers are told of."""
Reached = Callable[[Bound, str], None]
"""Called when a limit is reached, with what was refused or dropped."""


class _HasMeta(Struct):
    meta: dict[str, Any] | None = field(default=None, name="_meta")


_read_meta = msgspec.json.Decoder(_HasMeta).decode


class AnsweredMessage(Struct, frozen=True):
    """A request that a server answered without making it a call."""

    method: str
    """Its method, as the client sent it; empty if the message could not be read."""
    id: int | str | None
    """Its id; None if that could not be read."""
    seconds: float
    """The time from reading it to the answer."""
    code: int | None
    """The code of the error it was refused with; None if it was not."""
    size: int
    """Bytes of the answer."""
    wire: str
    """What it came over: `stdio`, `http`, …"""
    params: Any = None
    """Its params as they came; None if there are none."""

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` of its params; empty if there is none, or it cannot be read."""
        try:
            return {} if self.params is None else _read_meta(self.params).meta or {}
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return {}


class Observer:
    """Subclass it and override the methods you want; every method does nothing by default.

    All methods run on the event loop and must not block; for an observer that blocks,
    `mcpearl.telemetry.behind.Behind` runs its methods in a thread. If a method raises, the exception is
    logged and the call goes on.

    >>> class Slow(Observer):
    ...     def call_ended(self, began, call, outcome, size, answer):
    ...         if time.monotonic() - began > 1:
    ...             print(call.method, outcome, size)
    >>> app = Server("weather", observer=Slow())
    """

    def started(self, counters: Counters) -> None:
        """Note that a server was created.

        Args:
            counters: Returns the server's counters when called: what is open, in flight, refused.
        """

    def call_began(self, call: Any) -> Any:
        """Note that a call begins.

        Args:
            call: The call, with its `method` and `params`: at a server a `Call`, at a client a
                `ClientCall`.

        Returns:
            Anything; it is passed to the methods below. By default it is the monotonic time.
        """
        return clock.monotonic()

    def call_entered(self, began: Any) -> None:
        """Set context variables in the task that runs the handler of a call, at a server.

        They last as long as the task.

        Args:
            began: What `call_began` returned.
        """

    def call_meta(self, began: Any) -> Mapping[str, Any] | None:
        """Return members to add to the `_meta` of a call that a client sends.

        Args:
            began: What `call_began` returned.
        """

    def call_ended(self, began: Any, call: Any, outcome: Outcome, size: int, answer: Any) -> None:
        """Note that a call is over.

        Args:
            began: What `call_began` returned.
            call: The call.
            outcome: How it ended. `tool_error` is a tool's result with `isError`.
            size: Bytes of the answer; 0 for a call that was cancelled, and at a client.
            answer: The `Result`, or the exception if the outcome is `error`; None for a call that was
                cancelled.
        """

    def message_answered(self, message: AnsweredMessage) -> None:
        """Note a request that a server answered without a call.

        These are `initialize`, `ping`, `server/discover` and `logging/setLevel`, and requests that are
        refused before they become calls.

        Args:
            message: The request, and how it was answered.
        """

    def question_began(self, question: Any) -> Any:
        """Note a request from the server to its client, when a server sends it or a client answers it.

        Only requests are reported: in version 2026-07-28, questions to clients travel in results.

        Args:
            question: The request, with its `method` and `params`.

        Returns:
            Anything; it is passed to the methods below.
        """

    def question_meta(self, began: Any) -> Mapping[str, Any] | None:
        """Return members to add to the `_meta` of a question that a server asks.

        Args:
            began: What `question_began` returned.
        """

    def question_ended(self, began: Any, question: Any, outcome: Outcome, answer: Any) -> None:
        """Note that a question was answered, failed or was cancelled.

        Args:
            began: What `question_began` returned.
            question: The request.
            outcome: How it ended.
            answer: The `Result`, or the exception if the outcome is `error`; None if it was cancelled.
        """

    def connection_began(self, connection: object) -> None:
        """Note that a client and a server are connected, or that a session began.

        Args:
            connection: The object for it on this side; `connection_ended` gets the same one.
        """

    def connection_ended(self, connection: object, reason: Exception | None) -> None:
        """Note that a connection or session has ended.

        Args:
            connection: The object that `connection_began` got.
            reason: What ended it; None for an orderly end.
        """

    def bound_reached(self, bound: str, detail: str) -> None:
        """Note that a limit was reached.

        Args:
            bound: The setting, such as `Limits.max_in_flight`.
            detail: What was refused or dropped.
        """

    def loop_blocked(self, what: str, seconds: float) -> None:
        """Note that something held up the event loop of a server.

        Args:
            what: The call that did it, or a text saying that it was not a call.
            seconds: How long the loop was held up.
        """


MOST_IN_ROW = 64
"""Calls after which a row is added up."""
Told = Callable[[Any, Any, int], None]
"""Called with a call, its answer and the size of the answer."""


class Row:
    """Calls of one tool that ran without waiting and succeeded. They are counted together.

    Of calls that were read together, each begins when the one before it was answered, so the clock is
    read once for each. What is kept of a call is how long it took and nothing else: what is kept takes
    memory that the next call would have used again.

    Args:
        add_up: Counts the calls of a row. It must not raise.
        tell: Tells the observer of any other call.
        keep: Remembers a row, to settle it when the numbers are wanted.
    """

    __slots__ = ("_add_up", "_keep", "since", "size", "tell", "times", "tool")

    def __init__(
        self, add_up: "Callable[[Row], None]", tell: Told, keep: "Callable[[Row], None]"
    ) -> None:
        self._add_up = add_up
        self._keep = keep
        self.tell = tell
        """Tells the observer of a call that is not counted in a row."""
        self.tool = ""
        """The name of the tool."""
        self.since = 0.0
        """When the call that runs began, or the last one ended."""
        self.times: list[float] = []
        """How long each took, in seconds; `MOST_IN_ROW` at most where calls are not read together."""
        self.size = 0
        """Bytes of their answers."""

    def begin(self) -> None:
        """Have the next call begin now."""
        self.since = clock.monotonic()

    def settle(self) -> None:
        """Have the calls counted."""
        if self.times:
            self._add_up(self)
            self.times.clear()
            self.size = 0

    def make_room(self) -> None:
        """Settle a full row; an empty one is kept until the observer settles it."""
        self.settle()
        self._keep(self)

    def add_first(self, tool: str, size: int) -> None:
        """Add a call of another tool than the one before it.

        Args:
            tool: The name of the tool.
            size: Bytes of the answer.
        """
        self.settle()
        now = clock.monotonic()
        self.times.append(now - self.since)
        self.tool, self.since, self.size = tool, now, size

    def tell_apart(self, call: Any, answer: Any, size: int) -> None:
        """Tell the observer of a call that runs like those of the row, and is not counted in it."""
        if call.noted is None and size:
            call.noted = self.since
        self.tell(call, answer, size)
        self.begin()


class FastObserver(Observer):
    """An observer of this project that gets answers directly, for speed: it sees every call."""

    adds_up = False
    """Whether it counts calls of tools that ran without waiting and succeeded in rows.

    Then `add_up` is called once for many of them, and `answered` is not called for each.
    """

    def add_up(self, row: Row) -> None:
        """Count such calls. It must not raise.

        Args:
            row: The calls; at least one.
        """
        raise NotImplementedError

    def keep(self, row: Row) -> None:
        """Remember a row whose calls are not added up yet, to settle it when the numbers are wanted."""
        raise NotImplementedError

    tell_followed: Callable[[Any, Any, int], None]
    """`answered` passes a call on to this if another observer follows it; its `noted` is then a list."""

    def answered(self, call: Any, answer: Any, size: int) -> None:
        """Note that a call was answered. It must not raise.

        Args:
            call: The call; `noted` is None if it did not run.
            answer: The result or error.
            size: Bytes of the answer; 0 if nothing was sent, or not yet because it is in a batch.
        """
        raise NotImplementedError


class Stretch:
    """Decides which calls of one connection are followed."""

    __slots__ = ("left", "wins")

    def __init__(self) -> None:
        self.left = 0
        """How many of the next calls are not followed, except those that belong to a trace."""
        self.wins = False
        """Whether the call after these is known to be followed."""

    def follows(self, call: Any) -> bool:
        """Whether a call that begins is followed. It must not raise."""
        raise NotImplementedError

    def draw(self) -> None:
        """Decide on the calls after one that is followed. It must not raise."""
        raise NotImplementedError


class FollowedLate(Protocol):
    """A call that is followed, of which nothing is made until something looks at it, or it ends."""

    def enter(self) -> Any:
        """Mark the current context as that of the call; return what removes the mark."""
        ...


class SamplingObserver(Observer):
    """An observer of this project that follows few calls, and is not told of the others at all.

    What its `call_began` returns is not a float.
    """

    looks = True
    """Whether `call_ended` looks at results; otherwise it may get encoded ones."""

    def stretch(self) -> Stretch:
        """Return the object that decides which calls of a new connection are followed."""
        raise NotImplementedError

    def passing_by(self) -> tuple[Callable[[], Any], Callable[[Any], object]]:
        """Return two functions that begin and end a stretch of calls that are not followed.

        The first marks the current context. The second removes the mark; it gets what the first
        returned. They must not raise.
        """
        raise NotImplementedError

    def begin_late(self, call: Any, began: float, passed: Any) -> FollowedLate | None:
        """Begin to follow a call among others that are not followed.

        The result is passed to `call_ended`, or to `end_late`, or to both. It must not raise.

        Args:
            call: The call. Its stretch has it that it is followed.
            began: When it began, in monotonic time.
            passed: What removes the mark from the current context.

        Returns:
            None if `call_began` has to be called.
        """
        return None

    def end_late(self, late: Any, call: Any, ended: float) -> None:
        """Note that a call of a tool has succeeded, unless `call_ended` was called.

        Args:
            late: What `begin_late` returned.
            call: The call.
            ended: When it was answered, in monotonic time.
        """


def outcome_of(answer: Any) -> Outcome:
    """Return the outcome of a call that was answered."""
    if isinstance(answer, Exception):
        return "error"
    return "tool_error" if getattr(answer, "is_error", False) else "result"
