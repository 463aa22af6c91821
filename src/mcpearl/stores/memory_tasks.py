"""Tasks in memory: they end with the process, and otherwise behave as in any store."""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Mapping

from msgspec.structs import replace

from mcpearl.runtime import clock
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import TERMINAL, TaskRecord, TasksFull


class _Kept:
    """One task, when it expires, and the readers that wait for a change."""

    __slots__ = ("changes", "expires", "task")

    def __init__(self, task: TaskRecord, expires: float) -> None:
        self.task = task
        self.expires = expires
        self.changes: asyncio.Future[None] | None = None


class MemoryTaskStore:
    """A `TaskStore` that ends with the process."""

    def __init__(
        self,
        max_tasks: int = 100_000,
        max_per_owner: int = 10_000,
    ) -> None:
        """Create an empty store.

        Args:
            max_tasks: How many tasks there may be.
            max_per_owner: How many of them may belong to one identity.
        """
        self._max = max_tasks
        self._max_per_owner = max_per_owner
        self._tasks: dict[str, _Kept] = {}
        self._by_owner: dict[Identity, OrderedDict[str, None]] = {}
        self._expiries: list[tuple[float, str]] = []  # a heap; also of tasks deleted since

    def __len__(self) -> int:
        return len(self._tasks)

    async def create(self, task: TaskRecord, holder: str, lease: float) -> TaskRecord:
        """Keep a new task with its first lease."""
        now = clock.now()
        self._sweep(now)
        if task.id in self._tasks:
            raise ValueError("a task with this id exists")
        if len(self._tasks) >= self._max:
            raise TasksFull(f"there are {self._max} tasks already")
        if len(self._by_owner.get(task.owner, ())) >= self._max_per_owner:
            raise TasksFull(f"this owner has {self._max_per_owner} tasks already")
        held = {"holder": holder, "fence": 1, "lease_until": now + lease}
        task = replace(task, created=now, updated=now, revision=1, **held)
        self._tasks[task.id] = _Kept(task, now + task.ttl)
        heapq.heappush(self._expiries, (now + task.ttl, task.id))
        self._by_owner.setdefault(task.owner, OrderedDict())[task.id] = None
        return task

    async def get(self, id: str, owner: Identity) -> TaskRecord | None:
        """Return a task to its owner."""
        kept = self._find(id)
        return kept.task if kept is not None and kept.task.owner == owner else None

    async def page(self, owner: Identity, after: str | None, limit: int) -> list[TaskRecord]:
        """Return a page of an owner's tasks."""
        ids = [id for id in self._by_owner.get(owner, ()) if self._find(id) is not None]
        if after is not None:
            ids = ids[ids.index(after) + 1 :] if after in ids else []
        return [self._tasks[id].task for id in ids[:limit]]

    async def update(
        self, task: TaskRecord, expected: int, fence: int | None = None
    ) -> TaskRecord | None:
        """Replace a task that did not change since it was read."""
        kept = self._find(task.id)
        if kept is None or kept.task.status in TERMINAL:
            return None
        stored = kept.task
        if stored.revision != expected or (fence is not None and stored.fence != fence):
            return None
        over = task.status in TERMINAL
        changed = replace(
            stored,
            status=task.status,
            status_message=task.status_message,
            request=task.request,
            journal=task.journal,
            result=task.result,
            holder=None if over else stored.holder,
            lease_until=0.0 if over else stored.lease_until,
        )
        return self._write(kept, changed)

    async def claim(self, id: str, holder: str, lease: float) -> TaskRecord | None:
        """Take a free lease."""
        kept = self._find(id)
        if kept is None or kept.task.status in TERMINAL:
            return None
        now = clock.now()
        if kept.task.holder is not None and kept.task.lease_until > now:
            return None
        fence = kept.task.fence + 1
        claimed = replace(kept.task, holder=holder, fence=fence, lease_until=now + lease)
        return self._write(kept, claimed)

    async def renew(self, fences: Mapping[str, int], lease: float) -> set[str]:
        """Extend leases that are still held. A lease that lapsed unnoticed is extended, too."""
        until = clock.now() + lease
        renewed = set()
        for id, fence in fences.items():
            kept = self._find(id)
            if kept is not None and kept.task.holder is not None and kept.task.fence == fence:
                kept.task = replace(kept.task, lease_until=until)
                renewed.add(id)
        return renewed

    async def release(self, id: str, fence: int) -> bool:
        """Release a lease."""
        kept = self._find(id)
        if kept is None or kept.task.holder is None or kept.task.fence != fence:
            return False
        self._write(kept, replace(kept.task, holder=None, lease_until=0.0))
        return True

    async def lapsed(self, limit: int) -> list[TaskRecord]:
        """Return tasks that need a worker."""
        now = clock.now()
        alive = [kept.task for kept in self._tasks.values() if now < kept.expires]
        found = [task for task in alive if task.lease_until <= now and not _rests(task)]
        return sorted(found, key=lambda task: task.lease_until)[:limit]

    async def changed(self, id: str, owner: Identity, revision: int) -> TaskRecord | None:
        """Wait for a later revision."""
        while True:
            kept = self._find(id)
            if kept is None or kept.task.owner != owner:
                return None
            if kept.task.revision > revision:
                return kept.task
            if kept.changes is None:
                kept.changes = asyncio.get_running_loop().create_future()
            left = max(0.0, kept.expires - clock.now())
            await asyncio.wait((kept.changes,), timeout=left)

    async def delete(self, id: str) -> None:
        """Remove a task."""
        if id in self._tasks:
            self._remove(id)

    def _remove(self, id: str) -> None:
        kept = self._tasks.pop(id)
        owned = self._by_owner[kept.task.owner]
        del owned[id]
        if not owned:
            del self._by_owner[kept.task.owner]
        self._tell(kept)

    def _find(self, id: str) -> _Kept | None:
        kept = self._tasks.get(id)
        return kept if kept is not None and clock.now() < kept.expires else None

    def _write(self, kept: _Kept, task: TaskRecord) -> TaskRecord:
        kept.task = replace(task, revision=task.revision + 1, updated=clock.now())
        self._tell(kept)
        return kept.task

    def _tell(self, kept: _Kept) -> None:
        if kept.changes is not None:
            kept.changes.set_result(None)
            kept.changes = None

    def _sweep(self, now: float) -> None:
        """Remove what has expired."""
        while self._expiries and self._expiries[0][0] <= now:
            expires, id = heapq.heappop(self._expiries)
            if id in self._tasks and self._tasks[id].expires == expires:
                self._remove(id)
        if len(self._expiries) > 2 * len(self._tasks) + 100:
            self._expiries = [(kept.expires, id) for id, kept in self._tasks.items()]
            heapq.heapify(self._expiries)


def _rests(task: TaskRecord) -> bool:
    """Whether no worker is needed: the task is over, or parked until a client answers."""
    parked = task.status == "input_required" and task.holder is None
    return parked or task.status in TERMINAL
