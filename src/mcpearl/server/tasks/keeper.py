"""Keeps the leases of tasks, and takes up tasks whose worker is gone.

A worker renews the leases of its tasks. Any worker takes up a task whose lease has lapsed: it runs the
task again from its journal if the tool had not begun, waited for its client, or is declared repeatable.
Any other task fails, with an error that says that the tool may have run.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from mcpearl.protocol.errors import ConnectionLost, LimitReached, McpError
from mcpearl.protocol.events import Call
from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.runtime.child import Child
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.runtime.tree import Node
from mcpearl.server.context import Context
from mcpearl.server.tasks.journal import as_running, pack_request, unpack_request
from mcpearl.server.tasks.run import TaskRun
from mcpearl.stores.errors import StoreUnavailable, Unreadable
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.base import Result
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.server.tasks.engine import TaskEngine
    from mcpearl.server.tasks.options import Tasks

logger = logging.getLogger("mcpearl.tasks")
_AT_ONCE = 100  # tasks taken up in one go
_LEASES = "leases of tasks"  # in the tree


class TaskKeeper:
    """Keeps the leases of a process, and takes up tasks that no worker runs.

    Args:
        engine: The tasks of this process.
        options_of: Returns what a tool declares about tasks; None if it no longer runs as one.
        root: The tree of the server, in which it renews leases.
    """

    def __init__(
        self,
        engine: "TaskEngine",
        options_of: "Callable[[str], Tasks | None]",
        root: Supervisor,
    ) -> None:
        self._engine = engine
        self._options_of = options_of
        self._root = root
        self.tending = False
        """Whether leases are renewed."""
        self._closing = False

    async def start(self) -> None:
        """Renew leases from now on; further calls do nothing."""
        if self.tending:
            return
        self.tending, self._closing = True, False
        leases = RenewedLeases(self.tend, self._engine.bounds.lease)
        try:
            await self._root.add(Child(_LEASES, leases))
        except BaseException:
            self.tending = False
            raise

    async def tend(self) -> None:
        """Renew the leases of this process, then take up tasks without a worker."""
        engine = self._engine
        held = {id: run.fence for id, run in engine.runs.items() if not run.ended}
        if held:
            renewed = await engine.store.renew(held, engine.bounds.lease)
            for id in held.keys() - renewed:
                run = engine.runs.get(id)
                if run is not None:
                    await run.refresh()
        for record in await engine.store.lapsed(_AT_ONCE):
            if self._closing or len(engine.runs) >= engine.bounds.max_running:
                return
            try:
                engine.contents.opened(record.id, record.request)
            except Unreadable as error:  # a process that has the key may take it up
                logger.error("a task is left to others: %s", error)
            else:
                await self.take_up(record)

    async def take_up(self, record: TaskRecord) -> None:
        """Decide about a task whose lease lapsed or was released."""
        engine = self._engine
        died = record.running and record.holder is not None
        claimed = await engine.store.claim(record.id, engine.name, engine.bounds.lease)
        if claimed is None:
            return
        if died:
            claimed = await self._mourn(claimed)
            if claimed is None:
                return
        if claimed.status == "input_required":
            await engine.store.release(claimed.id, claimed.fence)  # parked until it is answered
        else:
            await self._run_again(claimed)

    async def _mourn(self, record: TaskRecord) -> TaskRecord | None:
        """Count the death of a worker; None if the task fails because of it."""
        engine = self._engine
        deaths = record.deaths + 1
        if record.repeatable and deaths <= engine.bounds.max_deaths:
            return await engine.store.update(
                replace(record, deaths=deaths, running=False), record.revision, record.fence
            )
        often = f" {deaths} times" if record.repeatable else ""
        await self._fail(
            record,
            f"The server process that ran this task ended{often} before the tool did; "
            "the tool may have run, wholly or in part",
        )
        return None

    async def _fail(self, record: TaskRecord, message: str) -> None:
        engine = self._engine
        if record.status in TERMINAL:
            return
        logger.warning("task %s: %s", record.id, message)
        error = McpError(INTERNAL_ERROR, message, {"taskId": record.id, "mayHaveRun": True})
        await engine.store.update(
            engine.endings.failing(error)(record), record.revision, record.fence
        )

    async def resume(self, record: TaskRecord) -> None:
        """Continue a parked task whose questions are answered."""
        engine = self._engine
        if self._closing or len(engine.runs) >= engine.bounds.max_running:
            return  # a worker takes it up when it next renews leases
        claimed = await engine.store.claim(record.id, engine.name, engine.bounds.lease)
        if claimed is not None:
            await self._run_again(claimed)

    async def _run_again(self, record: TaskRecord) -> None:
        """Run a task from its top, with its journal."""
        engine = self._engine
        call = unpack_request(engine.contents.opened(record.id, record.request))
        options = self._options_of(call.params.name)
        if options is None:
            await self._fail(record, f"Tool `{call.params.name}` is not there any more")
            return
        ctx = Context(call, NoClient(), engine.core)
        run = TaskRun(engine, ctx, options)
        run.prepare()
        run.questions.journal = engine.contents.journal_of(record)
        run.settle(record)
        engine.hold(run)
        if engine.store.durable and await run.write(as_running) is None:
            return
        logger.debug("task %s of %s: run again", record.id, record.owner)
        run.start(lambda: engine.core.redispatch(run.call, ctx))

    async def park(self, run: TaskRun) -> None:
        """Stop a run that waits for its client; it runs again when the answer arrives."""
        engine, record = self._engine, run.record
        assert record is not None
        if not engine.store.durable:  # a durable store has had it since the task was created
            request = pack_request(run.call)
            if await run.write(lambda record: replace(record, request=request)) is None:
                return
        engine.drop(run)
        await engine.store.release(record.id, run.fence)
        latest = await engine.store.get(record.id, record.owner)
        if latest is not None and latest.status == "working":
            await self.resume(latest)  # the answer came in between

    async def close(self, grace: float) -> None:
        """Let tasks finish within `grace` seconds; leave the rest to other workers, or fail it."""
        engine = self._engine
        self._closing = True
        for run, _ in engine.queue:
            run.ended = True  # they have not begun
        queued = {run for run, _ in engine.queue}
        engine.queue.clear()
        busy = [
            run.work
            for run in engine.runs.values()
            if run.work is not None and not run.questions.waiting
        ]
        if busy and grace > 0:
            await asyncio.wait(busy, timeout=grace)
        if self.tending:
            self.tending = False
            await self._root.remove(_LEASES)
        for run in list(engine.runs.values()):
            try:
                await self._leave(run, begun=run not in queued)
            except StoreUnavailable as error:
                logger.error("a task could not be handed over: %s", error)

    async def _leave(self, run: TaskRun, *, begun: bool) -> None:
        engine, record = self._engine, run.record
        assert record is not None
        waits = run.questions.waiting or not begun
        engine.drop(run)
        if not engine.store.durable:
            return
        if waits or record.repeatable:
            await engine.store.release(record.id, run.fence)
        else:
            await self._fail_ended(run, record)

    async def _fail_ended(self, run: TaskRun, record: TaskRecord) -> None:
        engine = self._engine
        latest = await engine.store.get(record.id, record.owner)
        if latest is not None and latest.fence == run.fence:
            await self._fail(latest, "The server was stopped while the tool ran; it may have run")


class RenewedLeases:
    """Tends to the tasks of a process again and again: a child of the server's tree.

    A look that fails is not the last one; the store may be away.

    Args:
        tend: One look.
        lease: Seconds that a lease lasts.
    """

    def __init__(self, tend: Callable[[], Awaitable[None]], lease: float) -> None:
        self._tend = tend
        self._lease = lease
        self._failures = 0
        self._last_error: str | None = None

    def tree(self) -> Node:
        """Return it as a node; each failed look counts as a restart."""
        failures, last = self._failures, self._last_error
        return Node(name=_LEASES, state="running", restarts=failures, last_error=last)

    async def __call__(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self._tend()
            except StoreUnavailable as error:
                self._failed(error)
                logger.error("leases of tasks could not be renewed: %s", error)
            except Exception as error:
                self._failed(error)
                logger.error("tending to tasks failed", exc_info=error)
            await asyncio.sleep(self._lease / 3)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._last_error = f"{type(error).__name__}: {error}"


class NoClient:
    """The peer of a task that is run again: the connection of its call is not here."""

    def __init__(self) -> None:
        self.share: Hashable = None
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()

    def waits_for(self, call: Call) -> bool:
        """Return False: there is no call to answer."""
        return False

    async def notify(self, call: Call, method: str, params: msgspec.Struct) -> None:
        """Drop it."""

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Refuse: there is no client."""
        raise ConnectionLost(f"`{method}` cannot be sent: there is no connection")

    def tell(self, message: bytes) -> bool:
        """Drop it."""
        return False

    def answer(self, call: Call, result: Result) -> None:
        """Drop it."""

    def stop(self, call: Call) -> None:
        """Do nothing."""

    def reserve(self, uri: str) -> None:
        """Refuse: there is no client."""
        raise LimitReached("This resource cannot be subscribed to: there is no connection")

    def subscribe(self, uri: str) -> None:
        """Do nothing: `reserve` has refused."""

    def unsubscribe(self, uri: str) -> None:
        """Do nothing: there is no subscription."""
