"""The calls of one connection while they run: each is started, answered once, or stopped.

A call that arrives on a stream runs in a task of its own; one that arrives in an HTTP request runs in
the task of that request.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from mcpearl.protocol import codec
from mcpearl.protocol.errors import McpError, answer_too_large
from mcpearl.protocol.events import (
    Call,
    Encoded,
    EncodedToolResult,
)
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.runtime import clock
from mcpearl.runtime.eager import current_task, nothing, run_through, spawn
from mcpearl.server.context import Context
from mcpearl.server.core import ServerCore
from mcpearl.server.peer import Peer
from mcpearl.server.roster import UNWINDING
from mcpearl.types.base import Result
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.runtime.observer import Row

logger = logging.getLogger("mcpearl.server")
CallAnswer = Result | Encoded | McpError
_RESULTS = (Result, Encoded)
Run = Callable[[Call], Coroutine[Any, Any, None]]


class Calls:
    """Runs the calls of one end.

    Args:
        core: What the server's connections share.
        end: Admits and answers the calls.
        peer: The other end, as handlers see it.
        ended: Called after a call ended, while `watched` is set.
        flush: Called after the last answer, to send it at once, unless `corked`.
    """

    __slots__ = (
        "_answered",
        "_closing",
        "_core",
        "_end",
        "_ended",
        "_flush",
        "_largest",
        "_loop",
        "_note",
        "_observer",
        "_peer",
        "_recorder",
        "_row",
        "_stand_in",
        "corked",
        "minded",
        "watched",
    )

    def __init__(
        self,
        core: ServerCore,
        end: ServerEnd,
        peer: Peer,
        ended: Callable[[], None] | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self.watched = False  # whether the connection waits for calls to end
        self.corked = flush is None  # whether answers wait for a later flush
        self._core = core
        self._end = end
        self._peer = peer
        self._ended = ended or _nothing
        self._flush = flush or _nothing
        self._loop = peer.loop
        self._stand_in: asyncio.Task[None] | None = None  # while a call runs without a task
        self._largest = core.limits.max_outgoing
        self._closing = False  # calls that arrive now are refused
        self._observer = observer = core.observer
        self.minded = observer is not None  # there is work to do before a call starts
        self._note = None if observer is None else observer.note
        self._answered = None if observer is None else observer.answered
        self._row: Row | None = None  # counts the call that runs with others, if it succeeds
        self._recorder = recorder = core.recorder
        if recorder is not None:
            watching = recorder.committing if recorder.durable else recorder.watching
            end.watch_answers(lambda finish: watching(finish, self._largest))

    # Starting

    def start(self, call: Call, run: Run | None = None) -> None:
        """Run a call in a task of its own, up to its first wait at once.

        `run` is what the connection does with the call instead of dispatching it.
        """
        if self.minded:
            if self._closing:
                self.answer(call, shutting_down())
                return
            call.noted = self._note(call) if self._note is not None else clock.monotonic()
        self._begin(call, run)

    def _begin(self, call: Call, run: Run | None) -> None:
        """Run a call up to its first wait; one that may wait, in a task of its own."""
        if run is not None:
            call.work = spawn(self._loop, run(call))
            return
        params = call.params
        if (
            call.method != "tools/call"
            or params.name not in self._core.at_once
            or params.task is not None
        ):
            call.work = spawn(self._loop, self.run(call))
            return
        stand_in = self._stand_in or self._make_stand_in()
        work = run_through(self._loop, self.run(call), stand_in)
        if work is not None:
            call.work = work

    def _make_stand_in(self) -> "asyncio.Task[None]":
        self._stand_in = stand_in = spawn(self._loop, nothing())
        return stand_in

    def start_at_once(self, call: Call) -> None:
        """Start a call of a tool that is known not to wait."""
        if self.minded:
            if self._closing:
                self.answer(call, shutting_down())
                return
            if self._note is not None:
                call.noted = self._note(call)
            else:
                call.noted = call.read or clock.monotonic()
        stand_in = self._stand_in or self._make_stand_in()
        work = run_through(self._loop, self.run(call), stand_in)
        if work is not None:
            call.work = work

    def begin_read(self) -> Callable[[Call], None]:
        """Return the function that starts each of the calls that were read together. See `minded`."""
        return self.start

    def end_read(self) -> None:
        """Note that what follows is not one of these calls."""

    def run_here(self, call: Call) -> Coroutine[Any, Any, None]:
        """Run one call to its end in the current task, which continues even if the call is cancelled."""
        if self.minded:
            if self._closing:
                return self._refuse(call, shutting_down())
            call.noted = self._note(call) if self._note is not None else clock.monotonic()
        call.work = current_task(self._loop)
        return self.run(call)

    async def _refuse(self, call: Call, error: McpError) -> None:
        self.answer(call, error)

    async def run_until_answered(self, call: Call) -> None:
        """Run one call in a task of its own, which may continue after the call was answered."""
        if call.work is None:
            self.start(call)
        work = call.work
        if work is None or work.done():
            return
        call.answered = answered = self._loop.create_future()
        try:
            await asyncio.wait((answered, work), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.give_up([call])
            raise

    def answer_early(self, call: Call, answer: Result) -> None:
        """Answer a call whose handler continues."""
        self.answer(call, answer)
        call.noted = None  # for the observer it has ended
        if call.answered is not None and not call.answered.done():
            call.answered.set_result(None)

    async def run_all(self, calls: list[Call], run: Run) -> None:
        """Run calls to their end, each in a task of its own.

        `run` runs one call: `self.run`, or what the connection does with it instead.
        """
        for call in calls:
            self.start(call, run)
        work = [call.work for call in calls if call.work is not None]
        if work:
            await asyncio.wait(work)

    def begin(self, call: Call) -> bool:
        """Record the start of a call that is not dispatched: a subscription that stays open.

        Returns whether it may continue; otherwise it was answered.
        """
        if self._recorder is not None:
            try:
                self._recorder.begin(call)
            except McpError as error:
                self.answer(call, error)
                return False
        return True

    async def run(self, call: Call) -> None:
        """Run one call and answer it. If it has `work` already, that task continues after the call."""
        answer: CallAnswer
        raised: BaseException | None = None
        dispatch, task = self._core.dispatch, call.work
        earlier = 0 if task is None else task.cancelling()
        try:
            answer = await dispatch(call, Context(call, self._peer, self._core))
        except asyncio.CancelledError as error:
            if not self._end.is_open(call) and not _is_task(call, error):
                call.run = None
                if self.watched:
                    self._ended()
                if task is None:
                    raise
                _let_go(call, task, earlier)
                return
            raised = error
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raised = error
        run = call.run
        if run is not None:
            call.run = None  # they must not keep each other
            if run.adopting and run.concluded(None if raised is not None else answer, raised):
                await self._finish_task(run)
                if task is not None:
                    _let_go(call, task, earlier)
                return
        if call.rounds is not None and call.rounds.suspended:
            # The handler asked and was stopped. How it reacted to that does not matter.
            answer = self._input_required(call)
        elif raised is not None:
            answer = self._failed(call, raised)
        self.answer(call, answer)
        if task is not None:
            _let_go(call, task, earlier)

    async def _finish_task(self, run: Any) -> None:
        """End the task that a call became; it was answered then."""
        if not run.ended:
            await run.engine.finish(run)
        if self.watched:
            self._ended()

    def _input_required(self, call: Call) -> CallAnswer:
        try:
            required: Result = call.rounds.required(clock.now())
        except Exception as error:
            return _answer_to(call, error, mask=self._core.mask_errors)
        return required

    def _failed(self, call: Call, error: BaseException) -> CallAnswer:
        # While its client waits, only the end of the server cancels a call.
        if isinstance(error, asyncio.CancelledError) and (self._closing or _was_cancelled()):
            return shutting_down()
        return _answer_to(call, error, mask=self._core.mask_errors)

    # Answering

    def answer(self, call: Call, answer: CallAnswer) -> int:
        """Hand the answer to the call's outlet; return its size, 0 when there is nothing to send."""
        end, row = self._end, None
        try:
            if type(answer) is EncodedToolResult:
                message, row = end.result(call, answer), self._row
            elif isinstance(answer, _RESULTS):
                message = end.result(call, answer)
            else:
                message = end.fail(call, _error(answer))
        except Exception as error:
            # A result that cannot be encoded costs only this call.
            message = self._no_form(call, error)
        size = 0
        if message is None:
            row = None
        else:
            size = len(message)
            if size > self._largest and call.batch is None:
                call.failed = True
                message = codec.encode_error(call.id, self._too_large(size))
                size = len(message)
            call.outlet.finish(message)
            if not self.corked and not end.in_flight:
                self._flush()
        if self.watched:
            self._ended()
        if row is not None:
            try:
                if call.params.name == row.tool:
                    now = clock.monotonic()
                    row.times.append(now - row.since)
                    row.since = now
                    row.size += size
                else:
                    row.add_first(call.params.name, size)
                return size
            except AttributeError:
                pass  # it is not the answer to `tools/call`
        if self._answered is not None:
            row = self._row
            tell = self._answered if row is None else row.tell_apart
            tell(call, answer, size)
        return size

    def _no_form(self, call: Call, error: Exception) -> bytes | None:
        from mcpearl.schema.errors import OutputError  # a start on stdio does without it

        no_form = OutputError(f"The result has no JSON form: {error}")
        answer = _answer_to(call, no_form, mask=False)
        if isinstance(answer, McpError):
            return self._end.fail(call, answer)
        return self._end.result(call, answer)

    def _too_large(self, size: int) -> McpError:
        error = answer_too_large(size, self._largest)
        self._core.bounded("Limits.max_outgoing", error.message)
        return error

    # Ending

    def stop(self, call: Call) -> None:
        """Stop a handler; the server stays up until it has ended."""
        # A cancelled task keeps its frames, and so the call: they must not hold each other for long.
        work, call.work = call.work, None
        if work is not None and not work.done():
            self._core.roster.unwind(work)
        if self._observer is not None and call.noted is not None:
            self._observer.call_ended(call.noted, call, "cancelled", 0, None)
        if self._recorder is not None:
            self._recorder.ended(call, "cancelled")

    def abort(self, call: Call, error: McpError) -> None:
        """Answer a call that is open with an error, and stop its handler."""
        self.answer(call, error)
        call.noted = None  # the observer knows how it ended
        self.stop(call)

    def stop_all(self) -> None:
        """Stop every call: the client is gone."""
        for call in list(self._end.in_flight.values()):
            self._end.drop(call)
            self.stop(call)

    def give_up(self, calls: Sequence[Call]) -> list[Call]:
        """Stop those of these calls that are still open, and return them."""
        given_up = [call for call in calls if self._end.is_open(call)]
        for call in given_up:
            self._end.drop(call)
            self.stop(call)
        return given_up

    def close(self) -> None:
        """Refuse calls from now on."""
        self._closing = self.minded = True
        self.watched = True

    async def cancel_rest(self) -> None:
        """Cancel what still runs, and wait a moment for it to end."""
        tasks = [call.work for call in self._end.in_flight.values() if call.work is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=UNWINDING)


def _answer_to(call: Call, error: BaseException, *, mask: bool) -> CallAnswer:
    from mcpearl.server.failures import answer_to

    return answer_to(call, error, mask=mask)


def make_calls(
    core: ServerCore,
    end: ServerEnd,
    peer: Peer,
    ended: Callable[[], None] | None = None,
    flush: Callable[[], None] | None = None,
) -> Calls:
    """Return the object that runs the calls of one end."""
    kind = Calls
    if core.observer is not None:
        from mcpearl.server.observed_calls import calls_under

        kind = calls_under(core.observer)
    return kind(core, end, peer, ended, flush)


def _error(answer: Any) -> McpError:
    if isinstance(answer, McpError):
        return answer
    raise TypeError(f"the handler returned a {type(answer).__name__}, not a `Result`")


def _was_cancelled() -> bool:
    """Whether the current task was cancelled, and not something it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_task(call: Call, error: BaseException) -> bool:
    """Whether a tool that was cancelled had become a task."""
    return call.run is not None and bool(call.run.concluded(None, error))


def _let_go(call: Call, task: "asyncio.Task[Any]", earlier: int) -> None:
    """Let the task of a request continue: a cancellation was meant for the call, which has ended."""
    call.work = None
    while task.cancelling() > earlier:
        task.uncancel()


def _nothing() -> None:
    pass


def shutting_down() -> McpError:
    return McpError(INTERNAL_ERROR, "The server is shutting down")
