"""One running tool that is a task, or may become one."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec import Struct

from mcpearl.protocol.events import Call, Encoded, Outlet
from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.server.context import Context, call_of, continue_with, peer_of
from mcpearl.server.dispatch import Next
from mcpearl.server.tasks.peer import TaskPeer
from mcpearl.server.tasks.questions import TaskQuestions
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.base import Result

if TYPE_CHECKING:
    from mcpearl.server.tasks.engine import TaskEngine
    from mcpearl.server.tasks.options import Tasks


class TaskRun(Struct, eq=False):
    """One run of a tool.

    Until it is a task it has the context of its call. From then on, questions, progress and
    `ctx.once` go to the store, even if the connection of the call is lost.

    Args:
        engine: Owns the tasks.
        ctx: The context the tool gets.
        options: What the tool declares about tasks.
    """

    engine: "TaskEngine"
    ctx: Context
    options: "Tasks"
    adopting: ClassVar[bool] = True
    record: TaskRecord | None = None
    """The task as last read; None before it is a task."""
    adoption: asyncio.Task[None] | None = None
    """The work of becoming a task, while that is under way."""
    value: Result | Encoded | None = None
    """What the tool returned."""
    raised: BaseException | None = None
    ended: bool = False
    """Whether the outcome of the tool is no longer needed."""
    fence: int = 0
    work: asyncio.Task[None] | None = None
    peer: TaskPeer = cast("TaskPeer", None)
    """Set by `prepare`, like the members after it."""
    questions: TaskQuestions = cast("TaskQuestions", None)

    def prepare(self) -> None:
        """Make the objects that a task needs and a call does not."""
        call = self.call
        self.work = call.work
        self.peer = TaskPeer(self, peer_of(self.ctx), call.progress_token)
        self.questions = TaskQuestions(self)
        if call.rounds is not None:
            self.questions.take_over(call.rounds)

    @property
    def call(self) -> Call:
        """The call that the tool works on."""
        return call_of(self.ctx)

    # Running

    def start(self, start: Next) -> None:
        """Run the tool of a task in an asyncio task of its own."""
        work = self._execute(start)
        # Making up a name takes time.
        self.work = self.call.work = self.peer.loop.create_task(work, name="mcpearl")

    async def _execute(self, start: Next) -> None:
        try:
            work = start()
            del start  # it refers to the call, which is answered by now
            self.value = await work
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            self.raised = error
        if not self.ended:
            await self.engine.finish(self)

    def concluded(self, value: Result | Encoded | None, raised: BaseException | None) -> bool:
        """Take what the tool returned or raised; return whether it is the end of a task."""
        self.value, self.raised = value, raised
        return self.record is not None

    async def adopt(self) -> bool:
        """Become a task; return False if the tool is done, or is asking its client."""
        return self.record is not None or await self.engine.promotions.adopt(self)

    def is_undecided(self) -> bool:
        """Whether the tool is running and is not a task."""
        return self.record is None and self.value is None and self.raised is None

    def settle(self, record: TaskRecord) -> None:
        """Work for the stored task from now on, no longer for the call."""
        self.record = record
        self.fence = record.fence
        call = self.call
        if call.rounds is not None:
            self.questions.take_over(
                call.rounds
            )  # once more: values may have been stored meanwhile
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
        """Store a change of the task. If the task is not this run's any more, stop the tool; return None.

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
    """The outlet of a tool whose call was answered: nothing can be sent through it.

    Args:
        before: The outlet of the call, which knows the wire and the client's address.
    """

    __slots__ = ("address", "medium", "request_headers", "session_id")

    def __init__(self, before: Outlet | None) -> None:
        self.address = None if before is None else before.address
        self.medium = "other" if before is None else before.medium
        self.request_headers = {} if before is None else before.request_headers
        self.session_id = None if before is None else before.session_id

    def send(self, message: bytes) -> None:
        """Drop it."""

    def finish(self, message: bytes, refused: bool = False) -> None:
        """Drop it."""

    async def drained(self) -> None:
        """Wait for nothing."""

    def send_away(self, retry_ms: int) -> None:
        """Do nothing: there is no response to end early."""
