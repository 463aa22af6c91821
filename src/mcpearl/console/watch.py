"""What the console notes of a server's calls while a page is open; otherwise nothing.

A busy server must not notice that it is watched. So single calls are noted only as far as there is room
in each interval, those that failed and those a page follows before others; all are counted. Once enough
calls of an interval are measured, others with a result are only counted, unless a page follows some.
"""

from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mcpearl.protocol.events import Call, Encoded, EncodedToolResult
from mcpearl.runtime import clock
from mcpearl.runtime.observer import FastObserver, Outcome, outcome_of
from mcpearl.runtime.tracing import ids_of
from mcpearl.types.base import Result, encode

KEPT = 500  # calls that a page is shown when it is opened
ROOM = 50  # calls noted in one interval, whatever they are
ROOM_FAILED = 30  # further ones that failed, or that a page follows
SHOWN = 4096  # bytes of arguments and results that are kept
_LARGE = 64 * 1024  # bytes of a result that is not shown
MAX_TIMES = 200  # calls of one interval whose time is measured

_COUNT: Literal["count"] = "count"  # compared by identity
FollowBy = Literal["session", "trace", "name"]


class NotedCall(Struct, frozen=True, gc=False):
    """A call that ended, as it is shown."""

    number: int
    at: float
    took: float
    method: str
    name: str | None
    client: str | None
    session: str | None
    principal: str | None
    trace: str | None
    outcome: Outcome
    size: int
    arguments: str | None
    result: str | None


class LiveWatch(FastObserver):
    """The observer behind the live view.

    Args:
        payloads: Whether arguments and results may be shown.
    """

    def __init__(self, payloads: bool) -> None:
        self._outcomes: dict[Outcome, int] = {
            "result": 0,
            "tool_error": 0,
            "error": 0,
            "cancelled": 0,
        }
        self._results = 0  # results of tools that were only counted, beside those above
        self._times: list[float] = []  # how long calls of this interval took
        self.bounds: Counter[str] = Counter()  # how often each limit was reached
        self.reached: dict[str, str] = {}  # the last detail of each
        self.blocked: deque[tuple[float, str, float]] = deque(maxlen=20)
        self.kept: deque[NotedCall] = deque(maxlen=KEPT)
        self._payloads = payloads
        self._numbers = count(1)
        self._fresh: list[NotedCall] = []  # noted in this interval
        self._room = 0
        self._room_failed = 0
        self._unmeasured = 0  # how many more calls of this interval are measured
        self._before = 0  # calls that had ended when the interval began
        self._followed: set[tuple[FollowBy, str]] = set()  # what open pages follow
        self._care: Literal["", "count", "look"] = (
            ""  # what is done with results: nothing, without a page
        )

    # Called by the server

    def answered(self, call: Call, answer: Any, size: int) -> None:
        """Count a call that was answered; look at it if it is measured, failed, or may be followed."""
        began = call.noted
        if began.__class__ is float:  # the case that must cost little
            if not (care := self._care):
                return
            if care is _COUNT and answer.__class__ is EncodedToolResult and size:
                self._results += 1
                return
        elif began.__class__ is list:
            self.tell_followed(call, answer, size)
            return
        if began is None or not (size or call.batch is not None):
            return
        if not size:
            call.noted = None  # the batch is not complete; the call may be answered a second time
        self.call_ended(began, call, outcome_of(answer), size, answer)

    def call_ended(
        self, began: float, call: Call, outcome: Outcome, size: int, answer: Any
    ) -> None:
        """Count a call, measure it, and note it while there is room."""
        if not self._care:
            return
        self._outcomes[outcome] += 1
        took = None
        if self._unmeasured:
            self._unmeasured -= 1
            if not (self._unmeasured or self._followed):
                self._care = _COUNT
            took = clock.monotonic() - began
            self._times.append(took)
        if self._room > 0:
            self._room -= 1
        elif self._room_failed > 0 and (
            outcome != "result" or (self._followed and self._is_followed(call))
        ):
            self._room_failed -= 1
        else:
            return
        if took is None:
            took = clock.monotonic() - began
        self._note(call, took, outcome, size, answer)

    def bound_reached(self, bound: str, detail: str) -> None:
        """Count how often a limit was reached."""
        self.bounds[bound] += 1
        self.reached[bound] = detail[:300]

    def loop_blocked(self, what: str, seconds: float) -> None:
        """Note what held up the event loop."""
        self.blocked.append((clock.now(), what[:300], seconds))

    # Noting

    def _is_followed(self, call: Call) -> bool:
        return any(value == _about(call, by) for by, value in tuple(self._followed))

    def follow(self, wanted: set[tuple[FollowBy, str]]) -> None:
        """Note calls of these sessions, traces and tools before others."""
        self._followed = wanted
        if self._care:
            self._care = "look" if self._unmeasured or wanted else _COUNT

    def _note(self, call: Call, took: float, outcome: Outcome, size: int, answer: Any) -> None:
        client, principal = call.caller.client, call.caller.principal
        noted = NotedCall(
            next(self._numbers),
            clock.now(),
            took,
            call.method,
            name_of(call),
            None if client is None else f"{client.name} {client.version}"[:100],
            session_of(call),
            getattr(principal, "subject", None),
            trace_of(call),
            outcome,
            size,
            _text(bytes(memoryview(call.raw)[:SHOWN])) if self._payloads else None,
            _answered(answer, size) if self._payloads else None,
        )
        self._fresh.append(noted)

    def begin(self) -> None:
        """Note single calls from now on: a page was opened."""
        self._begin_interval()

    def _begin_interval(self) -> None:
        self._room, self._room_failed = ROOM, ROOM_FAILED
        self._unmeasured, self._before = MAX_TIMES, self.calls
        self._care = "look"

    def end(self) -> None:
        """Note no more single calls, and forget those that were: the last page was closed."""
        self._care = ""
        self._room = self._room_failed = self._unmeasured = 0
        self._fresh.clear()
        self._times.clear()
        self.kept.clear()
        self._followed = set()

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """How many calls have ended in each way while a page was open."""
        return {**self._outcomes, "result": self._outcomes["result"] + self._results}

    @property
    def calls(self) -> int:
        """How many calls have ended while a page was open."""
        return sum(self._outcomes.values()) + self._results

    def take_times(self) -> list[float]:
        """Return how long calls of the interval took, the shortest first."""
        times, self._times = self._times, []
        times.sort()
        return times

    def take(self) -> tuple[list[NotedCall], int]:
        """Return the calls of the interval, and how many were not noted; begin the next interval."""
        fresh, self._fresh = self._fresh, []
        missed = self.calls - self._before - len(fresh)
        self._begin_interval()
        self.kept.extend(fresh)
        return fresh, missed


def name_of(call: Call) -> str | None:
    """Return the tool, prompt or URI that a call is about."""
    name = getattr(call.params, "name", None) or getattr(call.params, "uri", None)
    return name[:300] if isinstance(name, str) else None


def session_of(call: Call) -> str | None:
    """Return what the session of a call is shown as; a whole id would let its reader take it over."""
    id: str | None = call.outlet.session_id
    return None if id is None else id[:10]


def trace_of(call: Call) -> str | None:
    """Return the id of the trace that a call belongs to, if its `_meta` has one."""
    meta = getattr(call.params, "meta", None)
    named = ids_of(meta.get("traceparent")) if isinstance(meta, dict) else None
    return None if named is None else named[0]


_ABOUT: dict[FollowBy, Callable[[Call], str | None]] = {
    "session": session_of,
    "trace": trace_of,
    "name": name_of,
}


def _about(call: Call, by: FollowBy) -> str | None:
    return _ABOUT[by](call)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _answered(answer: Any, size: int) -> str | None:
    """Return the beginning of an answer as text; one that is large is not encoded for that."""
    if answer is None:
        return None
    if size > _LARGE and not isinstance(answer, Encoded):
        return f"({size} bytes)"
    try:
        if isinstance(answer, Encoded):
            return _text(answer.body[:SHOWN])
        return _text(encode(answer)[:SHOWN]) if isinstance(answer, Result) else str(answer)[:SHOWN]
    except (TypeError, ValueError, msgspec.MsgspecError):
        return None
