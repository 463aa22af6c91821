"""Calls that may become tasks: when they take too long, or when their tool says so.

Such a call runs as any other. To become a task it is answered, with the task, while its tool goes on in
the same asyncio task. One timer for all of them looks for those whose time is up.
"""

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Encoded
from mcpearl.server.context import Context, call_of, peer_of
from mcpearl.server.dispatch import Next
from mcpearl.server.tasks.options import Tasks
from mcpearl.server.tasks.run import TaskRun
from mcpearl.server.tasks.views import created
from mcpearl.types.base import Result

if TYPE_CHECKING:
    from mcpearl.server.tasks.engine import TaskEngine

logger = logging.getLogger("mcpearl.tasks")


class _Young:
    """The calls of tools with the same `after`, in the order in which their time is up."""

    __slots__ = ("_now", "after", "loop", "promotions", "runs", "timer")

    def __init__(self, promotions: "Promotions", after: float) -> None:
        self.promotions = promotions
        self.after = after
        self.loop = asyncio.get_running_loop()
        self._now = self.loop.time
        self.runs: dict[TaskRun, float] = {}
        self.timer: asyncio.TimerHandle | None = None

    def add(self, run: TaskRun) -> None:
        self.runs[run] = due = self._now() + self.after
        if self.timer is None and due != inf:
            self.timer = self.loop.call_at(due, self._look)

    def _look(self) -> None:
        self.timer = None
        now = self.loop.time()
        for run, due in list(self.runs.items()):
            if due > now:
                self.timer = self.loop.call_at(due, self._look)
                break
            del self.runs[run]
            self.promotions.overdue(run)


class Promotions:
    """The calls of a process that may become tasks."""

    def __init__(self, engine: "TaskEngine") -> None:
        self._engine = engine
        self._young: dict[float | None, _Young] = {}

    async def call(self, ctx: Context, start: Next, options: Tasks) -> Result | Encoded:
        """Run a tool as a call. What it returns is the answer, unless it became a task meanwhile."""
        call = call_of(ctx)
        call.run = run = TaskRun(self._engine, ctx, options)
        young = self._young.get(options.after) or self._of_age(options.after)
        young.add(run)
        try:
            run.value = value = await start()
        except BaseException as error:
            run.raised = error
            if run.record is None:
                raise
        finally:
            young.runs.pop(run, None)
            call.run = None  # they must not keep each other
        if run.record is None:
            return value
        if not run.ended:
            await self._engine.finish(run)
        return Result()  # the call was answered before

    def _of_age(self, after: float | None) -> _Young:
        assert after is not None
        young = self._young[after] = _Young(self, after)
        return young

    def close(self) -> None:
        """Make no more tasks of calls; the server is stopping."""
        for young in self._young.values():
            if young.timer is not None:
                young.timer.cancel()
        self._young.clear()

    def overdue(self, run: TaskRun) -> None:
        """Make a task of a run whose time as a call is up; if that cannot be, it goes on as a call."""
        self._engine.beside(self._promote(run))

    async def _promote(self, run: TaskRun) -> None:
        try:
            await self.adopt(run)
        except McpError as error:
            logger.warning("a call of %s goes on as a call: %s", run.call.params.name, error)

    async def adopt(self, run: TaskRun) -> bool:
        """Make a task of a run; False if it is done or asks its client at the moment."""
        if run.record is None:
            if run.adoption is None:
                run.adoption = asyncio.get_running_loop().create_task(self._adopt(run))
            await asyncio.shield(run.adoption)
        return run.record is not None

    async def _adopt(self, run: TaskRun) -> None:
        engine, call, peer = self._engine, run.call, peer_of(run.ctx)
        try:
            if not run.is_undecided() or (call.rounds is not None and call.rounds.asking):
                return
            run.prepare()
            record = await engine.create(run, run.options.ttl, running=True)
            asks = call.rounds is not None and call.rounds.asking
            if asks or not run.is_undecided() or not peer.waits_for(call):
                await engine.store.delete(record.id)  # the call itself is answered
                return
            stored = run.questions.journal.pack()
            run.settle(record)
            engine.runs[record.id] = run
            peer.answer(call, created(record))
            if run.questions.journal.pack() != stored:  # the tool did something once meanwhile
                journal = run.questions.journal
                await run.write(lambda record: engine.with_journal(record, journal))
        finally:
            run.adoption = None
