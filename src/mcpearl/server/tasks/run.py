"""One tool at work that is a task, or may become one."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpearl.protocol.events import Call, Encoded, Outlet
from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.runtime.eager import spawn
from mcpearl.server.context import Context, call_of, continue_with, peer_of
from mcpearl.server.dispatch import Next
from mcpearl.server.tasks.peer import TaskPeer
from mcpearl.server.tasks.questions import TaskQuestions
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.base import Result

if TYPE_CHECKING:
    from mcpearl.server.tasks.engine import TaskEngine
    from mcpearl.server.tasks.options import Tasks

_NEVER = 1e9  # seconds that no timer is set for


class TaskRun:
    """One run of a tool.

    Until it is a task, its context is that of the call. From then on, questions, progress and
    `ctx.once` go to the store, whatever becomes of the connection that the call came by.

    Args:
        engine: Owns the tasks.
        ctx: The context the tool gets.
        options: What the tool declares about tasks.
    """

    __slots__ = (
        "_until",
        "adoption",
        "created",
        "ctx",
        "ended",
        "engine",
        "fence",
        "options",
        "peer",
        "questions",
        "raised",
        "record",
        "repeatable",
        "value",
        "work",
    )

    def __init__(self, engine: "TaskEngine", ctx: Context, options: "Tasks") -> None:
        self.engine = engine
        self.ctx = ctx
        self.options = options
        self.peer = TaskPeer(self, peer_of(ctx), call_of(ctx).progress_token)
        self.questions = TaskQuestions(self)
        self.record: TaskRecord | None = None  # as last seen; None before it is a task
        self.created: TaskRecord | None = None  # as it was when it became a task
        self.adoption: asyncio.Task[None] | None = None  # its becoming one, while that takes
        self.repeatable = False
        self.fence = 0
        self.work: asyncio.Task[None] | None = None
        self.value: Result | Encoded | None = None  # what the tool returned
        self.raised: BaseException | None = None
        self.ended = False  # what the tool still does is of no interest any more
        self._until: asyncio.Future[None] | None = None  # the call that waits for this run

    @property
    def call(self) -> Call:
        """The call that the tool works on."""
        return call_of(self.ctx)

    # Running

    def start(self, start: Next, *, eager: bool = False) -> None:
        """Run the tool in an asyncio task of its own, up to its first wait at once if `eager`."""
        loop = self.peer.loop
        work = self._execute(start)
        self.work = spawn(loop, work) if eager else loop.create_task(work)
        if self.record is not None:
            self.call.work = self.work

    async def _execute(self, start: Next) -> None:
        try:
            self.value = await start()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            self.raised = error
        if self.record is not None and not self.ended:
            await self.engine.finish(self)
        self.let_go()

    @property
    def is_undecided(self) -> bool:
        """Whether the tool is at work, and not a task."""
        return self.created is None and self.value is None and self.raised is None

    def outcome(self) -> Result | Encoded:
        """Return what the tool returned, or raise what it raised."""
        if self.raised is not None:
            raise self.raised
        assert self.value is not None
        return self.value

    async def until_done(self, seconds: float) -> None:
        """Wait until the tool is done or has become a task, for so many seconds at most."""
        loop = self.peer.loop
        self._until = until = loop.create_future()
        timer = loop.call_later(seconds, self.let_go) if seconds < _NEVER else None
        try:
            await until
        except asyncio.CancelledError:
            self.stop()  # the client does not wait any more, or has to answer first
            raise
        finally:
            self._until = None
            if timer is not None:
                timer.cancel()

    def let_go(self) -> None:
        """Let the call that waits for this run go on."""
        if self._until is not None and not self._until.done():
            self._until.set_result(None)

    def settle(self, record: TaskRecord) -> None:
        """Work for a task that was stored, and no longer for the call."""
        self.record = self.created = record
        self.fence = record.fence
        call = self.call
        token = record.id if call.progress_token is None else call.progress_token
        detached = Call(call.id, call.method, call.params, call.raw, call.caller, token)
        detached.outlet = _NoOutlet(call.outlet)
        detached.rounds = self.questions
        detached.run = self
        detached.work = self.work
        continue_with(self.ctx, detached, self.peer)

    def stop(self) -> None:
        """Cancel the tool; what it still does is not stored."""
        self.ended = True
        self.peer.close()
        self.questions.close()
        if self.work is not None and not self.work.done():
            self.engine.core.roster.unwind(self.work)

    # Writing

    async def write(self, make: Callable[[TaskRecord], TaskRecord]) -> TaskRecord | None:
        """Store a change of the task. None, and the tool is stopped, if it is not this run's any more.

        Args:
            make: Returns the changed record for the latest one; called again when that changed.
        """
        record = self.record
        store = self.engine.store
        while record is not None and record.status not in TERMINAL and record.fence == self.fence:
            stored = await store.update(make(record), record.revision, self.fence)
            if stored is not None:
                self._see(stored)
                return stored
            record = await store.get(record.id, record.owner)
        self._lose(record)
        return None

    async def refresh(self) -> None:
        """Take over what another writer changed: answers, or the end of the task."""
        assert self.record is not None
        record = await self.engine.store.get(self.record.id, self.record.owner)
        if record is None or record.status in TERMINAL or record.fence != self.fence:
            self._lose(record)
            return
        self._see(record)
        await self.questions.take_answers(record)

    def is_behind(self, revision: int) -> bool:
        """Whether this run has not seen this revision; 0 stands for a task that is gone."""
        return self.record is not None and (revision == 0 or revision > self.record.revision)

    def _see(self, record: TaskRecord) -> None:
        assert self.record is not None
        before, self.record = self.record.status, record
        if before != record.status:
            self.peer.tell_status(record)

    def _lose(self, record: TaskRecord | None) -> None:
        if record is not None and not self.ended:
            self._see(record)
        self.engine.drop(self)


class _NoOutlet:
    """The outlet of a tool whose call was answered: nothing can be sent to it.

    Args:
        before: The outlet of the call, which knows how it came.
    """

    def __init__(self, before: Outlet | None) -> None:
        self.address = None if before is None else before.address
        self.request_headers = {} if before is None else before.request_headers
        self.session_id = None if before is None else before.session_id

    def send(self, message: bytes) -> None:
        """Drop it."""

    def finish(self, message: bytes, refused: bool = False) -> None:
        """Drop it."""

    async def drained(self) -> None:
        """Wait for nothing."""

    def send_away(self, retry_ms: int) -> None:
        """Do nothing: there is no response to hang up on."""
