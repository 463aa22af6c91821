"""The tasks of one process: created, changed and watched through the store.

A client sees the stored state. The engine holds the runs of this process, makes changes by comparing
revisions, and is notified by the store when a task changed, in this process or in another.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.task_lifecycle import TERMINAL, TaskStep, following
from mcpearl.runtime import clock
from mcpearl.runtime.backoff import Backoff, doubling
from mcpearl.runtime.child import Child
from mcpearl.runtime.eager import spawn
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.server.context import Context
from mcpearl.server.dispatch import Next
from mcpearl.server.tasks.contents import TaskContents
from mcpearl.server.tasks.endings import TaskEndings
from mcpearl.server.tasks.feed import TaskFeed
from mcpearl.server.tasks.journal import (
    Journal,
    as_running,
    owner_of,
    pack_request,
    read_question,
)
from mcpearl.server.tasks.keeper import TaskKeeper
from mcpearl.server.tasks.keys import key_of
from mcpearl.server.tasks.options import TaskBounds, Tasks
from mcpearl.server.tasks.promotion import Promotions
from mcpearl.server.tasks.questions import read_answer
from mcpearl.server.tasks.run import TaskRun
from mcpearl.server.tasks.views import unknown_task
from mcpearl.stores.errors import RETRY_AFTER, TOLD, StoreUnavailable
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import TaskRecord, TasksFull, TaskStore, holder_name
from mcpearl.types.base import Result
from mcpearl.types.elicitation import ElicitResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR, ErrorObject
from mcpearl.types.roots import ListRootsResult
from mcpearl.types.sampling import CreateMessageResult
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.server.core import ServerCore

logger = logging.getLogger("mcpearl.tasks")
ANSWERS: dict[str, type[Result]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}
_PAUSES = Backoff(delays=doubling(0.1, 5.0), jitter=0.0)  # while a result cannot be stored


class TaskTools(Protocol):
    """The tools of a server, as its tasks see them: a `Handler`, or a composition with its parts."""

    @property
    def tasked(self) -> bool:
        """Whether any tool can run as a task."""

    def tool(self, name: str) -> Tool | None:
        """Return a tool's definition."""

    def tasks_of(self, name: str) -> Tasks | None:
        """Return how a tool runs as a task; None for one that never does."""


class TaskEngine:
    """The tasks of a server in this process.

    Args:
        core: What the server's connections share.
        store: Keeps the tasks.
        bounds: Bounds of running tasks and of what is stored of one.
        handler: Has the tools, and what they declare about tasks.
        root: The tree of the server.
    """

    def __init__(
        self,
        core: "ServerCore",
        store: TaskStore,
        bounds: TaskBounds,
        handler: TaskTools,
        root: Supervisor,
    ) -> None:
        self.core = core
        self.store = store
        self.bounds = bounds
        self.name = holder_name()
        self.runs: dict[str, TaskRun] = {}  # tasks of this process, running or in the queue
        self.queue: deque[tuple[TaskRun, Next]] = deque()  # tasks that wait for their turn
        self.ended: Counter[str] = Counter()  # runs that ended here, by the status of their task
        self.contents = TaskContents(core, bounds)
        self.endings = TaskEndings(core, bounds, self.contents)
        self.feed = TaskFeed(self)
        self.keeper = TaskKeeper(self, lambda name: self._handler.tasks_of(name), root)
        self.promotions = Promotions(self)
        self._handler = handler
        self._root = root
        core.roster.names.serve("task", self.runs)
        self._put: set[tuple[str, str]] = set()  # questions that a client is being asked
        self._opening: asyncio.Lock | None = None  # held while the store is opened
        self._stop_watching: Callable[[], None] | None = None  # while the store is open
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._meta: dict[str, Any] | None = None  # of the latest task
        self._side_work: set[asyncio.Task[None]] = set()
        self._taking_back: set[asyncio.Task[None]] = set()  # refused tasks that may be stored

    def counters(self) -> dict[str, int]:
        """Count the tasks of this process by state, and those that have ended here."""
        found = {"tasks_queued": len(self.queue)}
        for status in TERMINAL:
            found[f"tasks_ended_{status}"] = self.ended[status]
        for run in self.runs.values():
            if run.record is not None:
                state = f"tasks_{run.record.status}"
                found[state] = found.get(state, 0) + 1
        return found

    async def start(self) -> None:
        """Open the store, and take up tasks that were left behind; further calls do nothing."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:  # calls of the first tool with tasks may come together
            if self._stop_watching is None:
                await self._open()

    async def _open(self) -> None:
        await self.store.start()
        if self.store.durable:
            self.contents.seal_with(self.core.state_keys or [key_of(self.store)])
        stop_watching = self.store.watch(self.heard, self.is_interested, self.missed_changes)
        self._stop_watching = stop_watching  # tasks that are taken up find the store open
        try:
            for name, run in self.store.parts().items():
                await self._root.add(Child(name, run))
            if self.store.durable:
                await self.keeper.start()
        except BaseException:
            stop_watching()
            self._stop_watching = None
            raise

    async def close(self) -> None:
        """Finish the running tasks or hand them over, and close the store."""
        self.promotions.close()
        await self.keeper.close(self.core.grace)
        for task in self._taking_back:
            task.cancel()
        if self._stop_watching is not None:
            for name in self.store.parts():
                await self._root.remove(name)
            self._stop_watching()
        self._stop_watching = self._opening = None
        await self.store.close()

    def look_in(self, tools: TaskTools) -> None:
        """Find tools here from now on."""
        self._handler = tools

    # Creating

    async def accept(self, ctx: Context, start: Next, options: Tasks, ttl: float) -> TaskRecord:
        """Store a new task and begin it; return it as it was stored."""
        run = TaskRun(self, ctx, options)
        run.prepare()
        has_room = len(self.runs) < self.bounds.max_running
        record = await self.create(run, ttl, running=has_room)
        run.settle(record)
        self.hold(run)
        if has_room:
            run.start(start)
        else:
            self.queue.append((run, start))
        return record

    async def create(self, run: TaskRun, ttl: float, *, running: bool) -> TaskRecord:
        """Store a task for a run. Once this returns, the task is not lost."""
        if self._stop_watching is None:  # before anything is sealed
            await self.start()
        call, id, contents = run.call, clock.token(24), self.contents
        call.params.meta = self._once(call.params.meta)
        record = TaskRecord(
            id=id,
            owner=owner_of(call),
            ttl=ttl,
            poll=run.options.poll,
            request=contents.sealed(id, pack_request(call)) if self.store.durable else b"",
            journal=contents.sealed_journal(id, run.questions.journal),
            repeatable=self._is_repeatable(call.params.name, run.options),
            running=running,
        )
        if not self.keeper.tending:
            await self.keeper.start()
        try:
            record = await self.store.create(record, self.name, self.bounds.lease)
        except TasksFull as error:
            self.core.refused("tasks", str(error))
            raise McpError(
                INTERNAL_ERROR,
                f"No task can be created: {error}. Collect or cancel tasks, or wait until they expire",
            ) from None
        except StoreUnavailable as error:
            logger.error("a task could not be stored: %s", error)
            taking = asyncio.get_running_loop().create_task(self._take_back(record))
            self._taking_back.add(taking)
            taking.add_done_callback(self._taking_back.discard)
            raise McpError(
                INTERNAL_ERROR, f"No task can be created: {TOLD}", {"retryAfter": RETRY_AFTER}
            ) from None
        logger.debug("task %s of %s: created for %s", id, record.owner, call.params.name)
        return record

    async def _take_back(self, record: TaskRecord) -> None:
        """Remove a task that was refused: it may have been stored although the reply was lost."""
        until = clock.monotonic() + record.ttl
        attempt = 0
        while clock.monotonic() < until:
            try:
                await self.store.delete(record.id)
                return
            except StoreUnavailable:
                await asyncio.sleep(_PAUSES.delay(attempt))
                attempt += 1

    def _once(self, meta: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the same object for equal `_meta`: clients repeat it, and tasks keep it."""
        if meta != self._meta:
            self._meta = meta
        return self._meta

    def _is_repeatable(self, name: str, options: Tasks) -> bool:
        tool = self._handler.tool(name)
        return options.repeatable(None if tool is None else tool.annotations)

    async def awake(self) -> None:
        """Start the store of a server whose first tool with tasks was added while it runs."""
        if self._stop_watching is None:
            await self.start()

    # Ending

    async def finish(self, run: TaskRun) -> None:
        """Store what the tool returned or raised, and the end of the task."""
        assert run.record is not None
        ending = self.endings.of_run(run)
        attempt = 0
        while not run.ended:
            try:
                await run.write(ending)
                break
            except StoreUnavailable as error:
                logger.error("the end of task %s could not be stored: %s", run.record.id, error)
                if clock.now() > run.record.created + run.record.ttl:
                    break
                await asyncio.sleep(_PAUSES.delay(attempt))
                attempt += 1
        run.ended = True
        run.peer.close()
        self.forget(run)
        logger.debug("task %s of %s: %s", run.record.id, run.record.owner, run.record.status)

    def hold(self, run: TaskRun) -> None:
        """Hold a run, to be found by the id of its task."""
        assert run.record is not None
        self.runs[run.record.id] = run
        self.core.roster.names.changed("task", run.record.id, run)

    def forget(self, run: TaskRun) -> None:
        """Forget a run that is over here, and begin one that waits for its turn."""
        if run.record is not None and self.runs.get(run.record.id) is run:
            del self.runs[run.record.id]
            self.core.roster.names.changed("task", run.record.id, None)
            self.ended[run.record.status] += 1
        if run.work is None:
            self.queue = deque(each for each in self.queue if each[0] is not run)
        if self.queue and len(self.runs) - len(self.queue) < self.bounds.max_running:
            self.beside(self._begin(*self.queue.popleft()))

    async def _begin(self, run: TaskRun, start: Next) -> None:
        if not self.store.durable or await run.write(as_running) is not None:
            run.start(start)

    def drop(self, run: TaskRun) -> None:
        """Stop a run whose task is over, gone, or another worker's."""
        if not run.ended:
            run.stop()
        self.forget(run)

    # Looking

    async def look(self, id: str, owner: Identity) -> TaskRecord:
        """Return a task of this owner; raises `McpError` if there is none."""
        if self._stop_watching is None:
            await self.start()
        record = await self.store.get(id, owner)
        if record is None:
            logger.debug("unknown task looked for by %s", owner)
            raise unknown_task(id)
        return record

    async def next_change(self, record: TaskRecord) -> TaskRecord:
        """Wait until a task has changed; raises `McpError` when it is gone."""
        changed = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(record.id, [])
        waiters.append(changed)
        try:
            latest = await self.look(record.id, record.owner)
            if latest.revision > record.revision:
                return latest
            left = max(0.0, record.created + record.ttl - clock.now())
            await asyncio.wait((changed,), timeout=left)
        finally:
            waiters.remove(changed)
            if not waiters and self._waiters.get(record.id) is waiters:
                del self._waiters[record.id]
        return await self.look(record.id, record.owner)

    def heard(self, id: str, revision: int) -> None:
        """Note that a task changed, here or in another process; revision 0 means that it is gone."""
        run = self.runs.get(id)
        if run is not None and not run.ended and run.is_behind(revision):
            self.beside(run.refresh())
        self._wake(id)
        self.feed.changed(id, revision)

    def missed_changes(self) -> None:
        """Read every task again that this process depends on: any of them may have changed."""
        for run in list(self.runs.values()):
            if not run.ended:
                self.beside(run.refresh())
        for id in [*self._waiters, *self.feed.ids()]:
            self._wake(id)
            self.feed.changed(id)

    def _wake(self, id: str) -> None:
        for waiter in self._waiters.get(id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def is_interested(self) -> bool:
        """Whether anything here depends on changes that other processes make."""
        return bool(self.runs or self._waiters or self.feed)

    def beside(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work beside the tools; log an error if the store is not available."""
        task = spawn(asyncio.get_running_loop(), self._logged(work))
        if not task.done():
            self._side_work.add(task)
            task.add_done_callback(self._side_work.discard)

    async def _logged(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except StoreUnavailable as error:
            logger.error("the store of tasks: %s", error)
        except Exception as error:
            logger.error("a change of a task failed", exc_info=error)

    # Changing

    async def _change(
        self, record: TaskRecord, make: Callable[[TaskRecord], TaskRecord | None]
    ) -> TaskRecord:
        """Apply a change to the latest record, unless it is over or `make` returns None."""
        while record.status not in TERMINAL:
            wanted = make(record)
            if wanted is None:
                return record
            stored = await self.store.update(wanted, record.revision)
            if stored is not None:
                return stored
            record = await self.look(record.id, record.owner)
        return record

    async def answer(
        self,
        record: TaskRecord,
        results: Mapping[str, Any],
        refusals: Mapping[str, ErrorObject] | None = None,
    ) -> None:
        """Store answers to open questions; others are ignored. Raises `McpError` for a wrong type."""

        def make(record: TaskRecord) -> TaskRecord | None:
            journal = self.contents.journal_of(record)
            taken = _take(journal, results, refusals or {})
            if not taken:
                return None
            answered = following(record.status, TaskStep.ANSWERED) or record.status
            status = record.status if journal.asked else answered
            return self.contents.with_journal(replace(record, status=status), journal)

        record = await self._change(record, make)
        if record.status == "working" and record.holder is None:
            await self.keeper.resume(record)  # it was parked

    def reserve_question(self, id: str, key: str) -> bool:
        """Note that a client is being asked a question; False if one already is."""
        if (id, key) in self._put:
            return False
        self._put.add((id, key))
        return True

    def free_question(self, id: str, key: str) -> None:
        """Note that a client is no longer being asked a question; another may be asked."""
        self._put.discard((id, key))
        self._wake(id)

    async def cancel(self, record: TaskRecord) -> TaskRecord:
        """End a task as cancelled, unless it is over; return it."""

        def make(record: TaskRecord) -> TaskRecord:
            return self.endings.over(record, TaskStep.CANCEL, "Cancelled by the client")

        record = await self._change(record, make)
        run = self.runs.get(record.id)
        if run is not None and record.status == "cancelled":
            await run.refresh()
        return record

    async def report(self, run: TaskRun, message: str) -> None:
        """Store a status message; one that cannot be stored is dropped."""
        try:
            await run.write(lambda record: replace(record, status_message=message))
        except StoreUnavailable as error:
            logger.warning("a status message could not be stored: %s", error)


def _take(
    journal: Journal, results: Mapping[str, Any], refusals: Mapping[str, ErrorObject]
) -> bool:
    """Move answers of open questions into a journal; return whether there were any."""
    taken = False
    for key, answer in results.items():
        asked = journal.asked.get(key)
        if asked is not None:
            encoded = msgspec.json.encode(answer)
            read_answer(key, encoded, ANSWERS[read_question(asked).method])
            del journal.asked[key]
            journal.answers[key] = Raw(encoded)
            taken = True
    for key, error in refusals.items():
        if journal.asked.pop(key, None) is not None:
            journal.refusals[key] = error
            taken = True
    return taken
