"""Reports to observers, one or several. `sampled` reports to one that follows few calls.

Several observers are told one after the other. An exception of an observer is logged; it affects neither
the call nor the other observers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mcpearl.protocol.events import EncodedToolResult
from mcpearl.runtime import clock
from mcpearl.runtime.observer import (
    AnsweredMessage,
    Counters,
    FastObserver,
    Observer,
    Outcome,
    Row,
    SamplingObserver,
    outcome_of,
)
from mcpearl.types.base import decode
from mcpearl.types.tool_calls import CallToolResult

logger = logging.getLogger("mcpearl.observer")

_EACH_SECOND = 10  # failures of an observer that are logged in one second


class Guarded:
    """An observer whose exceptions are caught and logged, ten a second at most."""

    __slots__ = ("_failures", "_observer", "_since", "enters", "has_meta")

    def __init__(self, observer: Observer) -> None:
        self._observer: Any = observer
        self._since = 0.0  # when the current second of counting failures began
        self._failures = 0
        self.enters = _overrides(observer, "call_entered")  # it is called in the handler's task
        self.has_meta = _overrides(observer, "call_meta")

    def started(self, counters: Counters) -> None:
        """Pass on that a server was created."""
        try:
            self._observer.started(counters)
        except Exception:
            self.failed("started")

    def call_began(self, call: Any) -> Any:
        """Pass on that a call begins, and return what the observer returned."""
        try:
            noted = self._observer.call_began(call)
        except Exception:
            self.failed("call_began")
            noted = None
        return clock.monotonic() if noted is None else noted

    def call_entered(self, began: Any) -> None:
        """Let the observer prepare the task of a handler."""
        try:
            self._observer.call_entered(began)
        except Exception:
            self.failed("call_entered")

    def call_meta(self, began: Any) -> Mapping[str, Any] | None:
        """Return what the observer adds to the `_meta` of a call."""
        try:
            found: Mapping[str, Any] | None = self._observer.call_meta(began)
        except Exception:
            self.failed("call_meta")
            return None
        return found

    def call_ended(self, began: Any, call: Any, outcome: Outcome, size: int, answer: Any) -> None:
        """Pass on that a call is over."""
        try:
            self._observer.call_ended(began, call, outcome, size, answer)
        except Exception:
            self.failed("call_ended")

    def message_answered(self, message: AnsweredMessage) -> None:
        """Pass on that a request was answered without a call."""
        try:
            self._observer.message_answered(message)
        except Exception:
            self.failed("message_answered")

    def question_began(self, question: Any) -> Any:
        """Pass on that a client is asked."""
        try:
            return self._observer.question_began(question)
        except Exception:
            self.failed("question_began")

    def question_meta(self, began: Any) -> Mapping[str, Any] | None:
        """Return what the observer adds to the `_meta` of a question."""
        try:
            found: Mapping[str, Any] | None = self._observer.question_meta(began)
        except Exception:
            self.failed("question_meta")
            return None
        return found

    def question_ended(self, began: Any, question: Any, outcome: Outcome, answer: Any) -> None:
        """Pass on that a question is over."""
        try:
            self._observer.question_ended(began, question, outcome, answer)
        except Exception:
            self.failed("question_ended")

    def connection_began(self, connection: object) -> None:
        """Pass on that a client connected."""
        try:
            self._observer.connection_began(connection)
        except Exception:
            self.failed("connection_began")

    def connection_ended(self, connection: object, reason: Exception | None) -> None:
        """Pass on that a client is gone."""
        try:
            self._observer.connection_ended(connection, reason)
        except Exception:
            self.failed("connection_ended")

    def bound_reached(self, bound: str, detail: str) -> None:
        """Pass on that a limit was reached."""
        try:
            self._observer.bound_reached(bound, detail)
        except Exception:
            self.failed("bound_reached")

    def loop_blocked(self, what: str, seconds: float) -> None:
        """Pass on that the loop was held up."""
        try:
            self._observer.loop_blocked(what, seconds)
        except Exception:
            self.failed("loop_blocked")

    def entering(self, dispatch: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return a function that calls `call_entered` and then answers a call.

        Args:
            dispatch: Answers a call in its context.
        """
        if not self.enters:
            return dispatch

        def entered(call: Any, ctx: Any) -> Any:
            self.call_entered(call.noted)
            return dispatch(call, ctx)

        return entered

    @property
    def samples(self) -> bool:
        """Whether the observer follows few calls."""
        return isinstance(self._observer, SamplingObserver)

    @property
    def needs_time_only(self) -> bool:
        """Whether all the observer needs when a call begins is the time."""
        return self.note is None and not (self.enters or self.has_meta)

    @property
    def each(self) -> "tuple[Guarded, ...]":
        """The observers that are told, one by one."""
        return (self,)

    @property
    def note(self) -> Callable[[Any], Any] | None:
        """The function to call when a call begins; None if the observer only needs the time."""
        return self.call_began if _overrides(self._observer, "call_began") else None

    @property
    def answered(self) -> Callable[[Any, Any, int], None]:
        """The function to call with a call, its answer and the size of the answer."""
        own = self._observer
        return own.answered if isinstance(own, FastObserver) else self._tell_answer

    @property
    def add_up(self) -> Callable[[Row], None] | None:
        """The function to call once for many calls of tools that succeeded; None: all are told."""
        own = self._observer
        return own.add_up if isinstance(own, FastObserver) and own.adds_up else None

    @property
    def keep(self) -> Callable[[Row], None] | None:
        """The function that remembers a row that is not added up yet; None: there are no rows."""
        own = self._observer
        return own.keep if isinstance(own, FastObserver) and own.adds_up else None

    def row(self) -> Row | None:
        """Return what counts calls of a new connection that run without waiting; None: all are told."""
        add_up, keep = self.add_up, self.keep
        return None if add_up is None or keep is None else Row(add_up, self.answered, keep)

    def _tell_answer(self, call: Any, answer: Any, size: int) -> None:
        """Report that a call was answered, if it ran and this is the first answer."""
        noted = call.noted
        if noted is None or not (size or call.batch is not None):
            return
        if not size:
            call.noted = None  # the batch is not complete; the call may be answered a second time
        outcome = outcome_of(answer)
        self.call_ended(noted, call, outcome, size, _whole(answer) if self.looks else answer)

    @property
    def looks(self) -> bool:
        """Whether the observer looks at results; otherwise it may get encoded ones."""
        return True

    def failed(self, event: str) -> None:
        """Log the exception being handled, which the observer raised on an event."""
        now = clock.monotonic()
        if now - self._since >= 1:
            self._since, self._failures = now, 0
        self._failures += 1
        if self._failures <= _EACH_SECOND:
            logger.exception("the observer %r failed on `%s`", self._observer, event)


def _whole(answer: Any) -> Any:
    """Return an answer in the form observers get it: a result is decoded."""
    if type(answer) is EncodedToolResult:
        return decode(CallToolResult, answer.body)
    return answer


class Several(Guarded):
    """Several observers, told in order; an exception of one does not affect the others."""

    __slots__ = ("_each", "_entering", "_notes")

    def __init__(self, each: Iterable[Guarded]) -> None:
        self._each = tuple(each)
        self._notes = [one.note for one in self._each]
        self._entering = [place for place, one in enumerate(self._each) if one.enters]
        self.enters = any(one.enters for one in self._each)
        self.has_meta = any(one.has_meta for one in self._each)

    @property
    def samples(self) -> bool:
        """Whether they follow few calls, which several observers together do not."""
        return False

    @property
    def each(self) -> tuple[Guarded, ...]:
        """The observers that are told, one by one."""
        return self._each

    @property
    def note(self) -> Callable[[Any], Any]:
        """The function that tells each that a call begins."""
        return self.call_began

    @property
    def answered(self) -> Callable[[Any, Any, int], None]:
        """The function that tells each that a call was answered."""
        return self._tell_answer

    @property
    def add_up(self) -> Callable[[Row], None] | None:
        """None: each is told of every call."""
        return None

    @property
    def keep(self) -> Callable[[Row], None] | None:
        """None: there are no rows."""
        return None

    def started(self, counters: Counters) -> None:
        """Tell each that a server was created."""
        for one in self._each:
            one.started(counters)

    def call_began(self, call: Any) -> list[Any]:
        """Tell each that a call begins, and return what each returned."""
        now = clock.monotonic()
        return [now if note is None else note(call) for note in self._notes]

    def call_entered(self, began: list[Any]) -> None:
        """Let each prepare the task of a handler."""
        for place in self._entering:
            self._each[place].call_entered(began[place])

    def call_meta(self, began: list[Any]) -> Mapping[str, Any] | None:
        """Return what all of them add to the `_meta` of a call."""
        found: dict[str, Any] = {}
        for one, each in zip(self._each, began, strict=True):
            if one.has_meta:
                found |= one.call_meta(each) or {}
        return found

    def call_ended(
        self, began: list[Any], call: Any, outcome: Outcome, size: int, answer: Any
    ) -> None:
        """Tell each that a call is over."""
        for one, each in zip(self._each, began, strict=True):
            one.call_ended(each, call, outcome, size, answer)

    def message_answered(self, message: AnsweredMessage) -> None:
        """Tell each that a request was answered without a call."""
        for one in self._each:
            one.message_answered(message)

    def question_began(self, question: Any) -> list[Any]:
        """Tell each that a client is asked."""
        return [one.question_began(question) for one in self._each]

    def question_meta(self, began: list[Any]) -> Mapping[str, Any] | None:
        """Return what all of them add to the `_meta` of a question."""
        found: dict[str, Any] = {}
        for one, each in zip(self._each, began, strict=True):
            found |= one.question_meta(each) or {}
        return found

    def question_ended(
        self, began: list[Any], question: Any, outcome: Outcome, answer: Any
    ) -> None:
        """Tell each that a question is over."""
        for one, each in zip(self._each, began, strict=True):
            one.question_ended(each, question, outcome, answer)

    def connection_began(self, connection: object) -> None:
        """Tell each that a client connected."""
        for one in self._each:
            one.connection_began(connection)

    def connection_ended(self, connection: object, reason: Exception | None) -> None:
        """Tell each that a client is gone."""
        for one in self._each:
            one.connection_ended(connection, reason)

    def bound_reached(self, bound: str, detail: str) -> None:
        """Tell each that a limit was reached."""
        for one in self._each:
            one.bound_reached(bound, detail)

    def loop_blocked(self, what: str, seconds: float) -> None:
        """Tell each that the loop was held up."""
        for one in self._each:
            one.loop_blocked(what, seconds)


class ObservedQuestion:
    """A request of a server to its client, while it waits for the answer.

    Args:
        method: The method.
        params: Its params.
        medium: The kind of wire it travels on.
        version: The version of the protocol.
        id: The id of the request; None until it is sent.
    """

    __slots__ = ("answer", "id", "medium", "method", "params", "version")

    def __init__(
        self, method: str, params: Any, medium: str, version: str, id: int | str | None = None
    ) -> None:
        self.method = method
        self.params = params
        self.medium = medium
        self.version = version
        self.id = id
        self.answer: Any = None


@contextmanager
def watched(observer: Guarded, question: ObservedQuestion) -> Iterator[Any]:
    """Tell an observer when a question is asked and when it has ended; yield what it noted."""
    began = observer.question_began(question)
    try:
        yield began
    except asyncio.CancelledError:
        observer.question_ended(began, question, "cancelled", None)
        raise
    except Exception as error:
        observer.question_ended(began, question, "error", error)
        raise
    observer.question_ended(began, question, "result", question.answer)


def guarded(observer: Observer | Iterable[Observer] | None) -> Guarded | None:
    """Return an object that tells one or several observers; None if there are none."""
    if observer is None:
        return None
    if isinstance(observer, Observer):
        observer = (observer,)
    return _joined(tuple(Guarded(one) for one in observer))


def both(first: Guarded | None, second: Guarded) -> Guarded:
    """Return an object that tells the observers of both."""
    return second if first is None else _joined(first.each + second.each) or second


def _joined(each: tuple[Guarded, ...]) -> Guarded | None:
    samplers = [one for one in each if one.samples]
    others = [one for one in each if not one.samples]
    if len(samplers) == 1 and len(others) <= 1 and all(one.needs_time_only for one in others):
        from mcpearl.runtime.sampled import Sampled  # loaded with the observer

        return Sampled(each)
    return Several(each) if len(each) > 1 else (each[0] if each else None)


def _overrides(observer: Observer, method: str) -> bool:
    return getattr(type(observer), method, None) is not getattr(Observer, method)
