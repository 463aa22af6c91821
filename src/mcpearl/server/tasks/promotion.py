"""Calls that may become tasks: when they take too long, or when their tool asks for it.

Such a call runs like any other. To become a task it is answered with the task, while its tool continues
in the same asyncio task. One timer checks all calls in flight for those whose time is up, so a call that
ends in time costs little more than any other.
"""

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Encoded
from mcpearl.server.context import Context, peer_of
from mcpearl.server.tasks.options import Tasks
from mcpearl.server.tasks.run import TaskRun
from mcpearl.server.tasks.views import created
from mcpearl.types.base import Result

if TYPE_CHECKING:
    from mcpearl.server.tasks.engine import TaskEngine

logger = logging.getLogger("mcpearl.tasks")
_LOOKS = 8  # how often calls are checked within the shortest time that one of them has
_SHARE = 20  # checking takes at most one part in this many of a process's time


class Candidate(Struct, eq=False):
    """A call that may become a task; held in `Call.run` until it becomes one."""

    promotions: "Promotions"
    call: Call
    ctx: Context
    options: Tasks
    since: float
    """The time of the latest check when the call began."""
    record: ClassVar[None] = None
    adopting: ClassVar[bool] = False

    async def adopt(self) -> bool:
        """Become a task; return False if the tool is done, or is asking its client."""
        if self.call.run is self:
            self.call.run = TaskRun(self.promotions.engine, self.ctx, self.options)
        run = self.call.run
        return run is not None and await run.adopt()

    def concluded(self, value: Result | Encoded | None, raised: BaseException | None) -> bool:
        """Return False: what the tool returned or raised is the answer to the call."""
        return False


class Promotions:
    """The calls of a process that may become tasks.

    Args:
        engine: Owns the tasks.
    """

    def __init__(self, engine: "TaskEngine") -> None:
        self.engine = engine
        self.now = 0.0  # the time of the latest check
        self.shortest = inf  # the least `after` of calls in flight; without any, no timer runs
        self._period = 0.0  # between two checks
        self._timer: asyncio.TimerHandle | None = None

    def look_for(self, after: float) -> None:
        """Check the calls often enough for one that has this many seconds."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self.now, self.shortest = loop.time(), after
        self._wait(loop, 0.0)

    def _wait(self, loop: asyncio.AbstractEventLoop, spent: float) -> None:
        self._period = max(self.shortest / _LOOKS, spent * _SHARE, 0.001)
        self._timer = loop.call_later(self._period, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, self.now, self.shortest = None, loop.time(), inf
        for connection in self.engine.core.roster:
            for call in list(connection.end.in_flight.values()):
                if type(call.run) is Candidate:
                    self._look_at(call.run)
        if self.shortest != inf:
            self._wait(loop, loop.time() - self.now)

    def _look_at(self, candidate: Candidate) -> None:
        after = candidate.options.after
        assert after is not None
        if self.now - candidate.since < after + self._period:
            self.shortest = min(self.shortest, after)
        else:
            self.engine.beside(self._promote(candidate))

    async def _promote(self, candidate: Candidate) -> None:
        """Make a task of a call whose time is up; if that fails, it continues as a call."""
        try:
            await candidate.adopt()
        except McpError as error:
            name = candidate.call.params.name
            logger.warning("a call of %s goes on as a call: %s", name, error)

    def close(self) -> None:
        """Make no more tasks: the server is stopping."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def adopt(self, run: TaskRun) -> bool:
        """Make a task of a run; return False if it is done, or is asking its client."""
        if run.record is None:
            if run.adoption is None:
                run.adoption = asyncio.get_running_loop().create_task(self._adopt(run))
            await asyncio.shield(run.adoption)
        return run.record is not None

    async def _adopt(self, run: TaskRun) -> None:
        engine, call, peer = self.engine, run.call, peer_of(run.ctx)
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
            engine.hold(run)
            peer.answer(call, created(record))
            if run.questions.journal.pack() != stored:  # `ctx.once` stored a value meanwhile
                journal = run.questions.journal
                await run.write(lambda record: engine.contents.with_journal(record, journal))
        finally:
            run.adoption = None
