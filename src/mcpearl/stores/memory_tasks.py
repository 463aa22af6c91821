"""Tasks in memory: they end with the process, and otherwise behave as in any store."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.runtime import clock
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import HearTask, TaskRecord, TasksFull


class MemoryTaskStore:
    """A `TaskStore` that ends with the process.

    Args:
        max_tasks: The most tasks the store keeps.
        max_per_owner: The most tasks of one identity.
    """

    durable = False

    def __init__(self, max_tasks: int = 100_000, max_per_owner: int = 10_000) -> None:
        self._max = max_tasks
        self._max_per_owner = max_per_owner
        self._tasks: dict[str, TaskRecord] = {}
        self._open: set[str] = set()  # tasks whose status is not terminal
        self._by_owner: dict[Identity, dict[str, None]] = {}
        self._expiries: list[tuple[float, str]] = []  # a heap; may contain deleted tasks
        self._hearers: list[HearTask] = []
        self._news: dict[str, int] = {}  # revisions not passed to hearers yet

    def __len__(self) -> int:
        return len(self._tasks)

    async def start(self) -> None:
        """Do nothing: memory needs no preparation."""

    async def close(self) -> None:
        """Do nothing: tasks stay readable as long as the store exists."""

    async def create(self, task: TaskRecord, holder: str, lease: float) -> TaskRecord:
        """Keep a new task with its first lease."""
        now = clock.now()
        self._sweep(now)
        if task.id in self._tasks:
            raise ValueError("a task with this id exists")
        if len(self._tasks) >= self._max:
            raise TasksFull(f"there are {self._max} tasks already")
        owned = self._by_owner.get(task.owner)
        if owned is not None and len(owned) >= self._max_per_owner:
            raise TasksFull(f"this owner has {self._max_per_owner} tasks already")
        held = {"holder": holder, "fence": 1, "lease_until": now + lease}
        task = replace(task, created=now, updated=now, revision=1, **held)
        self._tasks[task.id] = task
        self._open.add(task.id)
        heapq.heappush(self._expiries, (now + task.ttl, task.id))
        self._by_owner.setdefault(task.owner, {})[task.id] = None
        return task

    async def get(self, id: str, owner: Identity) -> TaskRecord | None:
        """Return a task to its owner."""
        task = self._find(id)
        return task if task is not None and task.owner == owner else None

    async def page(self, owner: Identity, after: str | None, limit: int) -> list[TaskRecord]:
        """Return a page of an owner's tasks."""
        owned = self._by_owner.get(owner, {})
        if after is not None and after not in owned:
            return []
        ids = iter(owned)
        if after is not None:
            for id in ids:
                if id == after:
                    break
        alive = (task for id in ids if (task := self._find(id)) is not None)
        return list(islice(alive, limit))

    async def update(
        self, task: TaskRecord, expected: int, fence: int | None = None
    ) -> TaskRecord | None:
        """Replace a task that did not change since it was read."""
        stored = self._find(task.id)
        if stored is None or stored.status in TERMINAL or stored.revision != expected:
            return None
        if fence is not None and stored.fence != fence:
            return None
        over = task.status in TERMINAL
        if over:
            self._open.discard(task.id)
        return self._write(
            replace(
                task,
                owner=stored.owner,
                created=stored.created,
                ttl=stored.ttl,
                revision=stored.revision,
                fence=stored.fence,
                holder=None if over else stored.holder,
                lease_until=0.0 if over else stored.lease_until,
            )
        )

    async def claim(self, id: str, holder: str, lease: float) -> TaskRecord | None:
        """Take a free lease."""
        task = self._find(id)
        if task is None or task.status in TERMINAL:
            return None
        now = clock.now()
        if task.holder is not None and task.lease_until > now:
            return None
        return self._write(
            replace(task, holder=holder, fence=task.fence + 1, lease_until=now + lease)
        )

    async def renew(self, fences: Mapping[str, int], lease: float) -> set[str]:
        """Extend leases that are still held. A lease that lapsed unnoticed is extended, too."""
        until = clock.now() + lease
        renewed = set()
        for id, fence in fences.items():
            task = self._find(id)
            if task is not None and task.holder is not None and task.fence == fence:
                self._tasks[id] = replace(task, lease_until=until)
                renewed.add(id)
        return renewed

    async def release(self, id: str, fence: int) -> bool:
        """Release a lease."""
        task = self._find(id)
        if task is None or task.holder is None or task.fence != fence:
            return False
        self._write(replace(task, holder=None, lease_until=0.0))
        return True

    async def lapsed(self, limit: int) -> list[TaskRecord]:
        """Return tasks that need a worker."""
        now = clock.now()
        self._sweep(now)
        alive = [self._tasks[id] for id in self._open]
        found = [task for task in alive if task.lease_until <= now and not _is_parked(task)]
        return sorted(found, key=lambda task: task.lease_until)[:limit]

    def watch(
        self, hear: HearTask, wanted: Callable[[], bool], missed: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call a function for each change, in the next turn of the event loop."""
        self._hearers.append(hear)
        return lambda: self._hearers.remove(hear)

    def parts(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Return nothing: only this process changes the tasks."""
        return {}

    async def delete(self, id: str) -> None:
        """Remove a task."""
        if id in self._tasks:
            self._remove(id)

    def _remove(self, id: str) -> None:
        task = self._tasks.pop(id)
        self._open.discard(id)
        owned = self._by_owner[task.owner]
        del owned[id]
        if not owned:
            del self._by_owner[task.owner]
        self._tell(id, 0)

    def _find(self, id: str) -> TaskRecord | None:
        task = self._tasks.get(id)
        return task if task is not None and clock.now() < task.created + task.ttl else None

    def _write(self, task: TaskRecord) -> TaskRecord:
        task = replace(task, revision=task.revision + 1, updated=clock.now())
        self._tasks[task.id] = task
        self._tell(task.id, task.revision)
        return task

    def _tell(self, id: str, revision: int) -> None:
        if self._hearers:
            if not self._news:
                asyncio.get_running_loop().call_soon(self._spread)
            self._news[id] = revision

    def _spread(self) -> None:
        news, self._news = self._news, {}
        for hear in list(self._hearers):
            for id, revision in news.items():
                hear(id, revision)

    def _sweep(self, now: float) -> None:
        """Remove expired tasks."""
        while self._expiries and self._expiries[0][0] <= now:
            expires, id = heapq.heappop(self._expiries)
            task = self._tasks.get(id)
            if task is not None and task.created + task.ttl == expires:
                self._remove(id)
        if len(self._expiries) > 2 * len(self._tasks) + 100:
            self._expiries = [(task.created + task.ttl, id) for id, task in self._tasks.items()]
            heapq.heapify(self._expiries)


def _is_parked(task: TaskRecord) -> bool:
    """Whether a task waits for a client rather than for a worker."""
    return task.status == "input_required" and task.holder is None
