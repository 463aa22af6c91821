"""The calls of one connection under an observer that needs little of most of them.

Calls that are read together run one after the other. As long as none of them waits, each begins when the
one before it was answered: the clock is read once for each, and the observer is told of all of them
together.
"""

from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

from mcpearl.protocol.events import Call
from mcpearl.runtime import clock
from mcpearl.runtime.eager import current_task, run_through
from mcpearl.runtime.observer import MOST_IN_ROW, FollowedLate
from mcpearl.runtime.observers import Guarded
from mcpearl.runtime.sampled import Sampled
from mcpearl.server.calls import Calls, Run, shutting_down
from mcpearl.server.core import ServerCore


class TimedCalls(Calls):
    """Calls that the observer adds up.

    A call that is known not to wait, or was read with others, has no `noted` at first. It gets one when
    the observer needs it: the call waits, fails, or is not one of a tool.
    """

    __slots__ = ("_rows",)

    def __init__(self, core: ServerCore, *rest: Any) -> None:
        super().__init__(core, *rest)
        self._rows = None if core.observer is None else core.observer.row()

    def start_at_once(self, call: Call) -> None:
        """Start a call of a tool that is known not to wait."""
        if self._closing:
            self.answer(call, shutting_down())
            return
        row = self._row = self._rows
        if row is None:
            call.noted = call.read or clock.monotonic()
        else:
            if not len(row.times) % MOST_IN_ROW:
                row.make_room()
            row.since = call.read or clock.monotonic()
        try:
            stand_in = self._stand_in or self._make_stand_in()
            work = run_through(self._loop, self.run(call), stand_in)
            if work is not None:
                call.work = work
                self._leave(call)
        finally:
            self._row = None

    def begin_read(self) -> Callable[[Call], None]:
        """Return the function that starts each of the calls that were read together."""
        if self._closing:
            return self.start
        row = self._row = self._rows
        if row is not None:
            row.begin()
        return self.start_read

    def end_read(self) -> None:
        """Tell the observer of the calls that were answered."""
        row, self._row = self._row, None
        if row is not None:
            row.settle()

    def start_read(self, call: Call) -> None:
        """Start a call, which begins when the one before it was answered."""
        self._begin(call, None)
        if call.work is not None:
            self._leave(call)

    def _leave(self, call: Call) -> None:
        """Go on with the next call after one that has a task, and may wait."""
        if self._row is not None:
            if call.noted is None and self._end.is_open(call):
                call.noted = self._row.since
            self._row.begin()

    def stop_all(self) -> None:
        """Stop every call: the client is gone."""
        if self._row is not None:  # it went while a call ran that was read with others
            for call in self._end.in_flight.values():
                call.noted = self._row.since if call.noted is None else call.noted
        super().stop_all()


class SampledCalls(TimedCalls):
    """Calls of which the observer follows only some; of the others it notes only the time."""

    __slots__ = (
        "_begin_late",
        "_end_late",
        "_followed",
        "_free",
        "_marked",
        "_marked_copy",
        "_pass_by",
        "_passed",
        "_resume",
        "_stretch",
    )

    def __init__(self, core: ServerCore, *rest: Any) -> None:
        super().__init__(core, *rest)
        observer = core.observer
        assert isinstance(observer, Sampled)
        self._stretch = observer.stretch()
        self._note = observer.noting(self._stretch)
        self._begin_late, self._end_late = observer.begin_late, observer.end_late
        self._followed: list[tuple[FollowedLate, Call, float]] = []  # and when each has ended
        self._pass_by, self._resume = observer.passing_by()
        self._free = 0  # calls that are not followed, and for which the context is marked
        self._marked = False
        self._passed: Any = None  # removes the mark
        marked = Context()
        marked.run(self._pass_by)
        self._marked_copy = marked.copy  # returns a context that has nothing but the mark

    def begin_read(self) -> Callable[[Call], None]:
        """Return the function that starts each of the calls that were read together."""
        if self._closing:
            return self.start
        row, stretch = self._rows, self._stretch
        self._row = row
        if row is not None:
            row.since = clock.monotonic()
        if stretch.left:
            self._free, stretch.left = stretch.left, 0
            self._marked, self._passed = True, self._pass_by()
        return self.start_read

    def end_read(self) -> None:
        """Tell the observer of the calls that were answered, and take the mark from the context."""
        row, self._row = self._row, None
        if row is not None:
            row.settle()
        if self._marked:
            self._marked = False
            self._stretch.left, self._free = self._free, 0
            self._resume(self._passed)
        if self._followed:
            self._end_followed()

    def _end_followed(self) -> None:
        """Tell the observer of the calls that it follows and that have succeeded.

        That is done for those of one read together: code that runs for one call in a hundred takes less
        time for several calls in a row.
        """
        followed, self._followed = self._followed, []
        for late, call, ended in followed:
            self._end_late(late, call, ended)

    def start_read(self, call: Call) -> None:
        """Start a call; the context is marked once for all that are not followed."""
        if self._free and ((meta := call.params.meta) is None or not _has_trace(meta)):
            self._free -= 1
            if self._row is None:
                call.noted = clock.monotonic()
            self._begin(call, None)
            if call.work is not None:
                self._leave(call)
        elif not (self._marked and self._stretch.wins and self._follow(call)):
            self.end_read()
            self.start(call)
            self.begin_read()

    def _follow(self, call: Call) -> bool:
        """Start a call that is followed, and is counted with the others if it succeeds at once.

        Returns False, with nothing started, for a call that the observer does not follow in this way.
        """
        row, meta = self._row, call.params.meta
        if self._closing or (meta is not None and _has_trace(meta)):
            return False
        began = clock.monotonic() if row is None else row.since
        late = self._begin_late(call, began, self._passed)
        if late is None:
            return False
        entered = late.enter()
        try:
            self._begin(call, None)
        finally:
            self._resume(entered)
        if call.work is not None:
            self._leave(call)
        if row is not None and not self._end.is_open(call):  # otherwise its end is told
            self._followed.append((late, call, row.since))
        if not self._closing:
            self._stretch.draw()
            if self._marked:
                self._free, self._stretch.left = self._stretch.left, 0
        return True

    def start_at_once(self, call: Call) -> None:
        """Start a call of a tool that is known not to wait, in a marked context if it is not followed."""
        stretch, meta = self._stretch, call.params.meta
        if meta is not None and ("traceparent" in meta or "baggage" in meta):  # as `_has_trace`
            self.start(call)
        elif stretch.left:  # what the class above does is written out here, to save a frame
            stretch.left -= 1
            row = self._row = self._rows
            if row is None:
                call.noted = call.read or clock.monotonic()
            else:
                if not len(row.times) % MOST_IN_ROW:
                    row.make_room()
                row.since = call.read or clock.monotonic()
            context = copy_context()
            if context:
                context.run(self._pass_by)
            else:  # as in connections of the server's own port
                context = self._marked_copy()
            try:
                stand_in = self._stand_in or self._make_stand_in()
                work = run_through(self._loop, self.run(call), stand_in, context)
                if work is not None:
                    call.work = work
                    self._leave(call)
            finally:
                self._row = None
        elif not (stretch.wins and self._follow_alone(call)):
            self.start(call)

    def _follow_alone(self, call: Call) -> bool:
        """Start a call that is followed; see `_follow`. It was not read with others."""
        row = self._rows
        if row is not None:
            if not len(row.times) % MOST_IN_ROW:
                row.make_room()
            row.since = call.read or clock.monotonic()
        self._row, self._passed = row, self._pass_by()
        try:
            return self._follow(call)
        finally:
            self._row = None
            self._resume(self._passed)
            if self._followed:
                self._end_followed()

    def start(self, call: Call, run: Run | None = None) -> None:
        """Run a call in a context that is prepared for it."""
        if self._closing:
            self.answer(call, shutting_down())
            return
        assert self._note is not None
        call.noted = self._note(call)
        copy_context().run(self._begin_prepared, call, run)

    def _begin_prepared(self, call: Call, run: Run | None) -> None:
        self._prepare(call)
        self._begin(call, run)

    def run_here(self, call: Call) -> Coroutine[Any, Any, None]:
        """Run one call to its end in the current task, which serves only its request."""
        meta = call.params.meta
        if self._stretch.left and (meta is None or not _has_trace(meta)):
            self._stretch.left -= 1
            call.noted = clock.monotonic()
            self._pass_by()
            call.work = current_task(self._loop)
            return self.run(call)
        running = super().run_here(call)
        self._prepare(call)
        return running

    def close(self) -> None:
        """Refuse calls from now on."""
        super().close()
        self._stretch.left = self._free = 0

    def _prepare(self, call: Call) -> None:
        noted = call.noted
        if noted.__class__ is float:
            self._pass_by()
        elif noted is not None and self._observer is not None:
            self._observer.call_entered(noted)


def _has_trace(meta: dict[str, Any]) -> bool:
    """Whether the `_meta` of a request says which trace it belongs to."""
    return "traceparent" in meta or "baggage" in meta


def calls_under(observer: Guarded) -> type[Calls]:
    """Return the class of the calls that this observer watches."""
    if isinstance(observer, Sampled):
        return SampledCalls
    return Calls if observer.add_up is None else TimedCalls
