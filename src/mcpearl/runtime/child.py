"""The children of a supervisor: what describes a child, and what runs it again and again.

This module starts a child, notices its end, and stops it. The supervisor decides about restarts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from mcpearl.runtime import clock
from mcpearl.runtime.backoff import Backoff, Retries
from mcpearl.runtime.tree import Node, State

logger = logging.getLogger("mcpearl.supervisor")

UNWINDING = 1.0  # seconds a child has to end after its shutdown time is over and it was cancelled
Restart = Literal["permanent", "transient", "temporary"]
ChildChanged = Callable[["KeptChild"], None]
Ended = Callable[["KeptChild", int], None]


@runtime_checkable
class Service(Protocol):
    """A part that can be started and stopped, and may end by itself. A restart is `stop`, then `start`.

    A service that has parts of its own may be a `Branch` too.
    """

    async def start(self) -> None:
        """Start. A start that fails raises, and leaves nothing behind."""
        ...

    async def ended(self) -> None:
        """Wait until the part ends by itself; raises the error if it failed."""
        ...

    async def stop(self) -> None:
        """Stop and release everything. Called once after each `start` that returned."""
        ...


@runtime_checkable
class Branch(Protocol):
    """A part with parts of its own: a supervisor, or a service that shows what it consists of."""

    def tree(self) -> Node:
        """Return this part as a node, with its own parts below.

        Its restarts and its last error are what it has recovered from without its supervisor.
        """
        ...


class Child(Struct, frozen=True):
    """A part to be supervised.

    >>> Child("poll", poll, restart="transient")
    """

    name: str
    """Its name, unique among its siblings."""
    run: Callable[[], Awaitable[Any]] | Service
    """A coroutine function, which runs until it is cancelled; or an object with `start`, `ended` and
    `stop`."""
    restart: Restart = "permanent"
    """`permanent`: it is restarted however it ends. `transient`: when it fails. `temporary`: never."""
    shutdown: float = 5.0
    """Seconds it has to stop; after that it is cancelled again, and finally left behind."""
    significant: bool = False
    """Whether its supervisor stops when this child ends for good."""
    escalates: bool = False
    """Whether its supervisor gives up too when this child, itself a supervisor, gives up."""
    backoff: Backoff | None = None
    """The delays before its restarts; by default those of its supervisor."""

    def __post_init__(self) -> None:
        if not callable(self.run) and not isinstance(self.run, Service):
            raise TypeError(
                f"child {self.name!r}: `run` is a coroutine function, or has `start`, `ended` and `stop`"
            )
        if self.restart not in ("permanent", "transient", "temporary"):
            raise ValueError(
                f"child {self.name!r}: `restart` is permanent, transient or temporary, "
                f"not {self.restart!r}"
            )
        if self.shutdown < 0:
            raise ValueError(f"child {self.name!r}: `shutdown` is a number of seconds")


class Cancelled(Exception):
    """A child's task was cancelled by something other than its supervisor."""


class KeptChild:
    """A child and its state. Each run of it is one task, from its start until it has stopped."""

    __slots__ = (
        "_since",
        "added",
        "announced",
        "child",
        "error",
        "gone",
        "last_error",
        "leaving",
        "restarts",
        "retries",
        "started",
        "state",
        "stopped",
        "task",
        "timer",
        "turn",
    )

    def __init__(self, child: Child, backoff: Backoff, *, added: bool) -> None:
        self.child = child
        self.added = added  # while the supervisor ran; forgotten once it has ended for good
        self.announced: State | None = None  # the state that followers were last told
        self.state: State = "ended"
        self.restarts = 0
        self.last_error: str | None = None
        self.error: BaseException | None = None  # of the run that ended last
        self.retries = Retries(child.backoff or backoff)
        self.timer: asyncio.TimerHandle | None = None  # of the restart it waits for
        self.task: asyncio.Task[None] | None = None
        self.started: asyncio.Future[bool] | None = None  # whether it came up
        self.gone: asyncio.Future[None] | None = None  # done when it has ended for good, if awaited
        self.stopped = False  # whether the supervisor asked this run to stop
        self.leaving = False  # whether this run is cleaning up
        self.turn = 0  # raised by each decision about it; events of an earlier turn are ignored
        self._since = 0.0

    @property
    def uptime(self) -> float:
        """Seconds since it came up."""
        return clock.monotonic() - self._since if self.state == "running" else 0.0

    def begin(self, changed: ChildChanged, ended: Ended) -> None:
        """Start a run. `ended` is called once, after the run has cleaned up, with the turn of the run."""
        self.wait_no_more()
        self.state = "starting"
        self.stopped = self.leaving = False
        turn = self.turn
        loop = asyncio.get_running_loop()
        self.started = started = loop.create_future()

        def done(task: "asyncio.Task[None]") -> None:
            if self.task is not task:
                return  # it was left behind, and has ended after all
            self.task = None
            lived = self.uptime
            self.error = Cancelled("it was cancelled") if task.cancelled() else task.exception()
            if not self.stopped and self.error is not None:
                self.last_error = _brief(self.error)
            self.retries.worked_for(lived)
            if not started.done():
                started.set_result(False)
            ended(self, turn)

        self.task = loop.create_task(self._run(started, changed), name=self.child.name)
        changed(self)
        self.task.add_done_callback(done)

    async def _run(self, started: "asyncio.Future[bool]", changed: ChildChanged) -> None:
        run = self.child.run
        if not isinstance(run, Service):
            self._came_up(started, changed)
            await run()
            return
        await run.start()
        self._came_up(started, changed)
        try:
            await run.ended()
        finally:
            self.leaving = True
            try:
                async with asyncio.timeout(self.child.shutdown):
                    await run.stop()
            except TimeoutError:
                logger.warning("%s did not stop within %g s", self.child.name, self.child.shutdown)

    def _came_up(self, started: "asyncio.Future[bool]", changed: ChildChanged) -> None:
        if self.stopped:
            return  # it was asked to stop meanwhile
        self.state = "running"
        self._since = clock.monotonic()
        if not started.done():
            started.set_result(True)
        changed(self)

    def go(self, error: BaseException | None = None) -> None:
        """Note that it has ended for good."""
        if self.gone is None or self.gone.done():
            return
        if error is None:
            self.gone.set_result(None)
        else:
            self.gone.set_exception(error)
            self.gone.exception()  # logged by the supervisor; callers that wait still get it

    def kill(self) -> bool:
        """Cancel the run as if it had failed; return False when there is no run, or it is ending."""
        task = self.task
        if task is None or self.stopped or self.leaving or not task.cancel():
            return False
        self.leaving = True  # another cancellation would interrupt its cleaning up
        return True

    async def stop(self, changed: ChildChanged) -> None:
        """End the run: cancel it, wait for its shutdown time, cancel it again, then leave it behind."""
        self.wait_no_more()
        self.turn += 1
        task = self.task
        if task is None:
            return
        if not self.stopped and not self.leaving:
            task.cancel()
        self.stopped = True
        self.state = "stopping"
        changed(self)
        for patience in (self.child.shutdown, UNWINDING):
            done, _ = await asyncio.wait([task], timeout=patience)
            if done:
                return
            task.cancel()
        self._leave_behind()

    def cut_short(self) -> "asyncio.Task[None] | None":
        """Cancel the run, whatever it is doing; return its task, and call `is_over` when it had time."""
        self.wait_no_more()
        self.turn += 1
        self.stopped = True
        if self.task is not None:
            self.task.cancel()
        return self.task

    def is_over(self) -> None:
        """Note that a run which was cut short has ended, or is left behind."""
        if self.task is not None:
            self._leave_behind()

    def _leave_behind(self) -> None:
        logger.error(
            "%s does not end although it was cancelled; it is left behind", self.child.name
        )
        self.task = None

    def wait_no_more(self) -> None:
        """Cancel the restart that it waits for, if any."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _brief(error: BaseException) -> str:
    text = str(error)
    kind = type(error).__name__
    if not text:
        return kind
    first = text if len(text) <= 300 else text[:300] + "…"
    return first if isinstance(error, Cancelled) else f"{kind}: {first}"
