"""Reports to an observer that follows few calls, and does nothing but note the time for the others."""

from collections.abc import Callable, Iterable
from typing import Any

from mcpearl.runtime import clock
from mcpearl.runtime.observer import FastObserver, FollowedLate, Outcome, Row, Stretch
from mcpearl.runtime.observers import Guarded, Several


class Sampled(Several):
    """One observer that follows few calls, and at most one other, which only needs the time.

    For a call that is not followed, only the time is noted.
    """

    __slots__ = ("_looks", "_other", "_place", "_sampler")

    def __init__(self, each: Iterable[Guarded]) -> None:
        super().__init__(each)
        (self._place,) = (place for place, one in enumerate(self._each) if one.samples)
        self._sampler = self._each[self._place]._observer
        self._other = next((one for one in self._each if not one.samples), None)
        others_look = self._other is not None and not isinstance(
            self._other._observer, FastObserver
        )
        self._looks = others_look or self._sampler.looks

    @property
    def looks(self) -> bool:
        """Whether one of them looks at results."""
        return self._looks

    @property
    def note(self) -> Callable[[Any], Any]:
        """The function that tells each that a call begins, if the call is followed."""
        return self.noting(self.stretch())

    def stretch(self) -> Stretch:
        """Return the object that decides which calls of a new connection are followed."""
        stretch: Stretch = self._sampler.stretch()
        return stretch

    def noting(self, stretch: Stretch) -> Callable[[Any], Any]:
        """Return the function to call when a call of a connection begins."""
        follows, call_began = stretch.follows, self.call_began

        def note(call: Any) -> Any:
            return call_began(call) if follows(call) else clock.monotonic()

        return note

    def begin_late(self, call: Any, began: float, passed: Any) -> FollowedLate | None:
        """Begin to follow a call among others that are not followed; None if it has to be noted."""
        late: FollowedLate | None = self._sampler.begin_late(call, began, passed)
        if late is not None:
            noted: list[Any] = [began] * len(self._each)
            noted[self._place] = late
            call.noted = noted
        return late

    def end_late(self, late: FollowedLate, call: Any, ended: float) -> None:
        """Tell the sampler that a call has succeeded which the other one has counted."""
        try:
            self._sampler.end_late(late, call, ended)
        except Exception:
            self._each[self._place].failed("call_ended")

    def passing_by(self) -> tuple[Callable[[], Any], Callable[[Any], object]]:
        """Return the functions that begin and end a stretch of calls that are not followed."""
        marks: tuple[Callable[[], Any], Callable[[Any], object]] = self._sampler.passing_by()
        return marks

    @property
    def answered(self) -> Callable[[Any, Any, int], None]:
        """The function that tells both, or only the other one, that a call was answered."""
        tell = self._tell_answer
        if self._other is None:

            def answered_alone(call: Any, answer: Any, size: int) -> None:
                if call.noted.__class__ is list:
                    tell(call, answer, size)

            return answered_alone
        tell_other = self._other.answered
        if isinstance(self._other._observer, FastObserver):
            self._other._observer.tell_followed = tell
            return tell_other

        def answered(call: Any, answer: Any, size: int) -> None:
            if call.noted.__class__ is list:
                tell(call, answer, size)
            else:
                tell_other(call, answer, size)

        return answered

    @property
    def add_up(self) -> Callable[[Row], None] | None:
        """The function of the other one to call once for many calls that are not followed."""
        return None if self._other is None else self._other.add_up

    @property
    def keep(self) -> Callable[[Row], None] | None:
        """The function of the other one that remembers a row."""
        return None if self._other is None else self._other.keep

    def entering(self, dispatch: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return `dispatch` unchanged: the code that runs calls prepares their tasks."""
        return dispatch

    def call_ended(self, began: Any, call: Any, outcome: Outcome, size: int, answer: Any) -> None:
        """Tell both, or only the other one, that a call is over."""
        if began.__class__ is list:
            super().call_ended(began, call, outcome, size, answer)
        elif self._other is not None:
            self._other.call_ended(began, call, outcome, size, answer)
