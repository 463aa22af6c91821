"""Supervision: a part that fails is started again by the supervisor that owns it.

A `Supervisor` starts its children in order, restarts those that end, and stops them in reverse order.
When restarting does not help it gives up, stops what is left, and fails itself: its own supervisor
then decides. Nothing here knows MCP.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Literal

from mcpearl.runtime import clock
from mcpearl.runtime.backoff import Backoff, doubling
from mcpearl.runtime.child import UNWINDING, Branch, Child, KeptChild
from mcpearl.runtime.supervisor_errors import Failure, GaveUp, StartFailed
from mcpearl.runtime.tree import Changes, Followers, Node, NodeChange, State

logger = logging.getLogger("mcpearl.supervisor")

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
RESTARTS = Backoff(delays=(0.0, *doubling(0.1, 5.0)))
"""Delays before the restarts of a child; the first restart is immediate."""


class Supervisor:
    """Keeps its children running.

    >>> async with Supervisor("feeds", [Child("prices", prices), Child("news", news)]) as feeds:
    ...     await feeds.ended()

    Args:
        name: Its name, for the tree and the log.
        children: The children, in the order in which they start. They can be supervisors.
        strategy: Which children are restarted when one ends: with `one_for_one` only that child, with
            `one_for_all` all of them, with `rest_for_one` also those that were started after it.
        restarts: How many restarts within `period` are allowed; with one more it gives up.
        period: The seconds within which restarts are counted.
        backoff: Delays before the restarts of a child.
        stop_together: Stop all children at once, instead of one by one in reverse order.
    """

    def __init__(
        self,
        name: str,
        children: Iterable[Child] = (),
        *,
        strategy: Strategy = "one_for_one",
        restarts: int = 10,
        period: float = 60.0,
        backoff: Backoff = RESTARTS,
        stop_together: bool = False,
    ) -> None:
        if strategy not in ("one_for_one", "one_for_all", "rest_for_one"):
            raise ValueError(
                f"`strategy` is one_for_one, one_for_all or rest_for_one, not {strategy!r}"
            )
        if restarts < 0 or period <= 0:
            raise ValueError("`restarts` is not below 0, and `period` a number of seconds above 0")
        self.name = name
        self._given = tuple(children)
        self._strategy = strategy
        self._restarts = restarts
        self._period = period
        self._backoff = backoff
        self._stop_together = stop_together
        self._children: dict[str, KeptChild] = {}
        for child in self._given:
            self._keep(child, added=False)
        self._followers = Followers()
        self._above: Supervisor | None = None
        self._failures: deque[Failure] = deque(maxlen=restarts + 1)
        # Children to decide about, each with its turn
        self._events: asyncio.Queue[tuple[KeptChild, int]] = asyncio.Queue()
        self._lock = asyncio.Lock()  # held while children are started or stopped
        self._watching: asyncio.Task[None] | None = None
        # Set from start to stop; done when the supervisor ended by itself
        self._end: asyncio.Future[None] | None = None
        self._since = 0.0

    # Starting and stopping

    async def start(self) -> None:
        """Start the children in order.

        Raises:
            StartFailed: A child did not start; those before it were stopped again.
        """
        if self._end is not None:
            raise RuntimeError(f"supervisor `{self.name}` is running already")
        for name in [name for name, kept in self._children.items() if kept.added]:
            del self._children[name]
        for child in self._given:  # also one that was removed or ended for good in the last run
            if child.name not in self._children:
                self._keep(child, added=False)
        self._failures.clear()
        self._events = asyncio.Queue()
        self._lock = asyncio.Lock()
        self._since = clock.monotonic()
        self._end = asyncio.get_running_loop().create_future()
        try:
            for kept in tuple(self._children.values()):
                if not await self._start(kept):
                    raise self._not_started(kept)
        except BaseException:
            self._end = None
            await self._stop_children()
            raise
        self._watching = asyncio.get_running_loop().create_task(
            self._watch(), name=f"supervisor {self.name}"
        )

    async def ended(self) -> None:
        """Wait until the supervisor ends by itself.

        Raises:
            GaveUp: Its children were restarted too often, or a significant one failed for good.
        """
        if self._end is None:
            raise RuntimeError(f"supervisor `{self.name}` is not running")
        await asyncio.shield(self._end)

    def check(self) -> None:
        """Raise the error that the supervisor ended with, if any."""
        if self._end is not None and self._end.done():
            self._end.result()

    async def stop(self) -> None:
        """Stop the children: the last one first, each within its own time."""
        end, self._end = self._end, None
        watching, self._watching = self._watching, None
        try:
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])
        finally:
            await self._stop_children()
        for kept in self._children.values():
            kept.go()
        if end is not None and not end.done():
            end.set_result(None)

    async def __aenter__(self) -> "Supervisor":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        end = self._end
        await self.stop()
        if error is None and end is not None:
            end.result()

    # Children

    async def add(self, child: Child) -> None:
        """Start another child, as the last one. It is forgotten when it has ended for good.

        Args:
            child: The child.

        Raises:
            StartFailed: It did not start, and was not added.
        """
        async with self._lock:
            if self._end is None or self._end.done():
                raise RuntimeError(f"supervisor `{self.name}` is not running")
            kept = self._keep(child, added=True)
            try:
                if not await self._start(kept):
                    raise self._not_started(kept)
            except BaseException:
                await kept.stop(self._changed)
                self._children.pop(child.name, None)
                raise

    async def remove(self, name: str) -> bool:
        """Stop a child and forget it; return False when there is no child of that name.

        Args:
            name: The child's name.
        """
        async with self._lock:
            kept = self._children.get(name)
            if kept is None:
                return False
            awaited = kept.timer is not None
            waiting = [each for each in self._with_it(kept)[1:] if each.state == "waiting"]
            await self._stop([kept])
            self._children.pop(name, None)
            kept.go()
            if awaited:
                await self._start_all(waiting)
            return True

    async def until_gone(self, name: str) -> None:
        """Wait until a child has ended for good or was removed.

        Args:
            name: The child's name.

        Raises:
            Exception: The error that the child ended with, or that this supervisor gave up with.
        """
        kept = self._children.get(name)
        if kept is None:
            return
        if kept.gone is None:
            kept.gone = asyncio.get_running_loop().create_future()
        await asyncio.shield(kept.gone)

    def kill(self, *path: str) -> bool:
        """Cancel a child as if it had failed; return False when it is not running.

        Args:
            *path: The child's name; before it the names of the supervisors between this one and it.
        """
        kept = self._children.get(path[0])
        if kept is None:
            return False
        if len(path) > 1:
            below = kept.child.run
            return isinstance(below, Supervisor) and below.kill(*path[1:])
        return kept.kill()

    def __contains__(self, name: object) -> bool:
        return name in self._children

    def __len__(self) -> int:
        return len(self._children)

    # Inspecting

    def tree(self) -> Node:
        """Return the tree of this supervisor as it is now."""
        return Node(
            name=self.name,
            state=self._state(),
            uptime=clock.monotonic() - self._since if self._end is not None else 0.0,
            children=tuple(_node(kept) for kept in self._children.values()),
        )

    def _state(self) -> State:
        if self._end is None:
            return "ended"
        if not self._end.done():
            return "running"
        return "ended" if self._end.exception() is None else "failed"

    def follow(self, callback: Callable[[NodeChange], None]) -> Callable[[], None]:
        """Call a function with every change in the tree; return a function that ends this.

        Args:
            callback: Called with each `NodeChange`, on the event loop; it must not block.
        """
        return self._followers.call(callback)

    def changes(self, limit: int = 1000) -> Changes:
        """Return an iterator over the changes in the tree from now on, for `async for`.

        Args:
            limit: How many changes may wait to be taken; then the oldest are dropped.
        """
        return self._followers.iterate(limit)

    def _changed(self, kept: KeptChild) -> None:
        if kept.announced != kept.state:
            kept.announced = kept.state
            error = kept.last_error if kept.state in ("waiting", "failed") else None
            self._tell(NodeChange((self.name, kept.child.name), kept.state, error))

    def _tell(self, change: NodeChange) -> None:
        if self._followers:
            self._followers.tell(change)
        if self._above is not None:
            self._above._tell(
                NodeChange((self._above.name, *change.path), change.state, change.error)
            )

    # Restarting

    async def _watch(self) -> None:
        """Handle events one by one: children that ended, and restarts that are due."""
        try:
            while True:
                kept, turn = await self._events.get()
                async with self._lock:
                    if kept.turn == turn:
                        await self._take(kept)
        except _Over as over:
            self._finish(over.error)
        except Exception as error:
            # A bug in the supervisor itself must not leave children without one.
            logger.exception("supervisor `%s` failed", self.name)
            self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        if self._end is None or self._end.done():
            return
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)
            self._end.exception()  # logged here; callers that wait still get it
            logger.error("%s", error)

    async def _take(self, kept: KeptChild) -> None:
        if kept.state == "waiting":
            await self._restart(kept)
        else:
            await self._ended(kept)

    async def _ended(self, kept: KeptChild) -> None:
        """Decide about a child that ended by itself."""
        child, error = kept.child, kept.error
        if child.escalates and isinstance(error, GaveUp):
            kept.state = "failed"
            self._changed(kept)
            await self._over(error)
        if child.restart == "temporary" or (child.restart == "transient" and error is None):
            await self._leave(kept)
            return
        at = clock.monotonic()
        reason = (kept.last_error or "") if error is not None else "it returned"
        self._failures.append(Failure(at, child.name, reason))
        recent = [each for each in self._failures if at - each.at <= self._period]
        if len(recent) > self._restarts:
            kept.state = "failed"
            self._changed(kept)
            await self._over(self._gave_up(recent, error))
        delay = kept.retries.next_delay()
        logger.warning("%s/%s: %s; restart in %.2g s", self.name, child.name, reason, delay)
        self._wait(kept)
        await self._take_down(self._with_it(kept)[1:])
        kept.timer = asyncio.get_running_loop().call_later(delay, self._post, kept, kept.turn)

    def _post(self, kept: KeptChild, turn: int) -> None:
        """Queue an event of a child: it ended, or its restart is due."""
        self._events.put_nowait((kept, turn))

    def _wait(self, kept: KeptChild) -> None:
        kept.state = "waiting"
        self._changed(kept)

    async def _leave(self, kept: KeptChild) -> None:
        """Handle a child that ended for good."""
        kept.state = "ended" if kept.error is None else "failed"
        self._changed(kept)
        if kept.error is not None:
            logger.warning("%s/%s: %s", self.name, kept.child.name, kept.last_error)
        if kept.child.significant:
            failure = Failure(clock.monotonic(), kept.child.name, kept.last_error or "")
            await self._over(None if kept.error is None else self._gave_up([failure], kept.error))
        if kept.added or kept.child.restart == "temporary":
            self._children.pop(kept.child.name, None)
        kept.go(kept.error)

    def _gave_up(self, failures: list[Failure], cause: BaseException | None) -> GaveUp:
        gave_up = GaveUp(self.name, self._period, tuple(failures))
        gave_up.__cause__ = cause
        return gave_up

    async def _over(self, error: BaseException | None) -> None:
        """End the supervisor, after stopping all children."""
        await self._stop_children()
        for kept in self._children.values():
            kept.go(error)
        raise _Over(error)

    def _with_it(self, kept: KeptChild) -> list[KeptChild]:
        """Return the children that are restarted together with one; that one comes first."""
        everyone = list(self._children.values())
        if self._strategy == "one_for_all":
            return [kept, *(each for each in everyone if each is not kept)]
        if self._strategy == "rest_for_one":
            return everyone[everyone.index(kept) :]
        return [kept]

    async def _take_down(self, others: list[KeptChild]) -> None:
        """Stop children that are restarted together with another one; forget temporary ones."""
        await self._stop(others)
        for each in others:
            if each.child.restart == "temporary":
                self._children.pop(each.child.name, None)
                each.go()
            else:
                self._wait(each)  # for the restart of the one that ended

    async def _restart(self, kept: KeptChild) -> None:
        """Start a child again, and with it those that were stopped because of it."""
        kept.restarts += 1
        if self._strategy == "one_for_one":
            kept.begin(self._changed, self._post)
            return
        others = self._with_it(kept)[1:]
        for each in others:
            each.restarts += 1
        group = {kept, *others}
        await self._start_all([each for each in self._children.values() if each in group])

    async def _start_all(self, children: list[KeptChild]) -> None:
        """Start children in order, up to the first that fails; its end is then handled as any other."""
        for kept in children:
            if kept.task is None and not await self._start(kept):
                break

    # Parts of the above

    def _keep(self, child: Child, *, added: bool) -> KeptChild:
        if child.name in self._children:
            raise ValueError(f"supervisor `{self.name}` has a child named {child.name!r} already")
        kept = self._children[child.name] = KeptChild(child, self._backoff, added=added)
        return kept

    async def _start(self, kept: KeptChild) -> bool:
        """Start a child and wait until it is running or has failed; return whether it is running."""
        below = kept.child.run
        if isinstance(below, Supervisor):
            below._above = self
        kept.begin(self._changed, self._post)
        assert kept.started is not None
        return await kept.started

    def _not_started(self, kept: KeptChild) -> StartFailed:
        failed = StartFailed(
            f"supervisor `{self.name}`: child `{kept.child.name}` did not start: {kept.last_error}"
        )
        failed.__cause__ = kept.error
        return failed

    async def _stop_children(self) -> None:
        """Stop all children; if this is cancelled, cut their time short, so that none is left alone."""
        children = list(self._children.values())
        try:
            await self._stop(children)
        except asyncio.CancelledError:
            await _wait_in_any_case([task for kept in children if (task := kept.cut_short())])
            for kept in children:
                kept.is_over()
                self._has_stopped(kept)
            raise

    async def _stop(self, children: list[KeptChild]) -> None:
        if self._stop_together:
            await asyncio.gather(*map(self._stop_one, children))
        else:
            for kept in reversed(children):
                await self._stop_one(kept)

    async def _stop_one(self, kept: KeptChild) -> None:
        await kept.stop(self._changed)
        self._has_stopped(kept)

    def _has_stopped(self, kept: KeptChild) -> None:
        if kept.state != "failed":
            kept.state = "ended"
            self._changed(kept)


class _Over(Exception):
    """The supervisor has ended, with this error or without one."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error


def _node(kept: KeptChild) -> Node:
    run: object = kept.child.run
    own = run.tree() if isinstance(run, Branch) else None
    return Node(
        name=kept.child.name,
        state=kept.state,
        restarts=kept.restarts + (own.restarts if own else 0),
        last_error=(own and own.last_error) or kept.last_error,
        uptime=kept.uptime,
        children=own.children if own else (),
    )


async def _wait_in_any_case(tasks: "Iterable[asyncio.Task[None]]") -> None:
    """Wait until tasks that were cancelled have ended, even if this is cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    until = loop.time() + UNWINDING
    left = {task for task in tasks if not task.done()}
    while left and loop.time() < until:
        with suppress(asyncio.CancelledError):
            _, left = await asyncio.wait(left, timeout=until - loop.time())
