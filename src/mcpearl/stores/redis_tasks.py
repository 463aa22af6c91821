"""Tasks in Redis or Valkey: they survive every process, and all machines share them.

A task is one value (`redis_task_value`), which the server deletes when it expires. Sorted sets say which
tasks need a worker, when each expires, and which belong to an owner. Every change is one script
(`redis_task_scripts`), which also adds an entry to a stream that all processes read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.runtime import clock
from mcpearl.stores import redis_task_scripts as scripts
from mcpearl.stores import redis_task_value as values
from mcpearl.stores.errors import Unreadable
from mcpearl.stores.redis_link import Argument, RedisLink
from mcpearl.stores.redis_script import Script
from mcpearl.stores.redis_tail import Tail
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import HearTask, TaskRecord, TasksFull, machine_in

logger = logging.getLogger("mcpearl.stores")


class RedisTaskStore:
    """A `TaskStore` in Redis or Valkey.

    Args:
        link: The connection.
        max_tasks: The most tasks the store keeps.
        max_per_owner: The most tasks of one identity.
        now: Returns the time that leases and expiry are measured by; by default the server's clock is
            used.
    """

    durable = True

    def __init__(
        self,
        link: RedisLink,
        max_tasks: int = 100_000,
        max_per_owner: int = 10_000,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._link = link
        self._max = max_tasks
        self._max_per_owner = max_per_owner
        self._now = now
        self._writer = ""  # marks the changes of this process; new with each start
        self._hearers: list[tuple[HearTask, Callable[[], bool], Callable[[], None] | None]] = []
        self._one = link.key("task", "")  # the key of a task, before its id
        self._owners = link.key("tasks", "of", "")  # that of an owner's tasks, before its digest
        self._open, self._changes, self._expiries, self._number = (
            link.key("tasks", each) for each in ("open", "changes", "expiries", "number")
        )
        self._tail = Tail(link, self._changes, self._heard, self._missed)
        self._news: dict[str, int] = {}  # own changes not passed to hearers yet

    async def start(self) -> None:
        """Connect. Raises `StoreUnavailable` for a server that cannot be used."""
        await self._link.start()
        self._writer = clock.token(9)
        await self._tail.start()

    async def close(self) -> None:
        """Finish all steps, and disconnect."""
        await self._tail.close()
        await self._link.close()

    # Steps

    async def create(self, task: TaskRecord, holder: str, lease: float) -> TaskRecord:
        """Store a new task with its first lease."""
        id = task.id
        own = self._owners + values.digest_of(task.owner)
        numbers, rest = values.creation(task, holder, lease, self._max, self._max_per_owner)
        reply = await self._link.run(
            scripts.CREATE,
            (self._one + id, self._open, self._expiries, own, self._number),
            (self._time(), id, numbers, rest),
        )
        match reply:
            case b"taken":
                raise ValueError("a task with this id exists")
            case b"full":
                raise TasksFull(f"there are {self._max} tasks already")
            case b"share":
                raise TasksFull(f"this owner has {self._max_per_owner} tasks already")
        now = values.created_at(reply)
        held = {"holder": holder, "fence": 1, "lease_until": now + lease}
        return replace(task, created=now, updated=now, revision=1, **held)

    async def get(self, id: str, owner: Identity) -> TaskRecord | None:
        """Return a task to its owner."""
        task = await self._find(id)
        return task if task is not None and task.owner == owner else None

    async def machine_of(self, id: str) -> str | None:
        """Return the machine that runs a task; None when no machine does."""
        task = await self._find(id)
        return None if task is None or not task.holder else machine_in(task.holder)

    async def _find(self, id: str) -> TaskRecord | None:
        value = await self._link.send("GET", self._one + id)
        if value is None:
            return None
        task = values.record(id, value)
        # The server has deleted what expired by its clock, but not by another one.
        expired = self._now is not None and task.created + task.ttl <= self._now()
        return None if expired else task

    async def page(self, owner: Identity, after: str | None, limit: int) -> list[TaskRecord]:
        """Return a page of an owner's tasks."""
        own = self._owners + values.digest_of(owner)
        position = "" if after is None else f"+{after}"
        ids = await self._link.run(scripts.PAGE, [own], (position, limit))
        return await self._read_all(ids)

    async def _read_all(self, ids: list[bytes]) -> list[TaskRecord]:
        """Return the tasks that exist; skip what is not a task, and log it."""
        finding = (self._find(id.decode(errors="replace")) for id in ids)
        tasks = []
        for found in await asyncio.gather(*finding, return_exceptions=True):
            if isinstance(found, TaskRecord):
                tasks.append(found)
            elif isinstance(found, Unreadable):
                logger.error("a task is passed over: %s", found)
            elif found is not None:
                raise found
        return tasks

    async def update(
        self, task: TaskRecord, expected: int, fence: int | None = None
    ) -> TaskRecord | None:
        """Replace a task that did not change since it was read."""
        change = values.change(expected, fence, task.status)
        reply = await self._step(scripts.UPDATE, task.id, change, values.written(task))
        if reply is None:
            return None
        task = values.changed(task, reply)
        self._tell(task.id, task.revision)
        return task

    async def claim(self, id: str, holder: str, lease: float) -> TaskRecord | None:
        """Take a free lease."""
        reply = await self._step(scripts.CLAIM, id, holder, lease)
        if reply is None:
            return None
        task = values.record(id, reply)
        self._tell(id, task.revision)
        return task

    async def renew(self, fences: Mapping[str, int], lease: float) -> set[str]:
        """Extend leases that are still held. A lease that lapsed unnoticed is extended, too."""
        replies = await asyncio.gather(
            *(self._step(scripts.RENEW, id, fence, lease) for id, fence in fences.items())
        )
        return {id for id, renewed in zip(fences, replies, strict=True) if renewed}

    async def release(self, id: str, fence: int) -> bool:
        """Release a lease."""
        revision = await self._step(scripts.RELEASE, id, fence)
        if revision:
            self._tell(id, revision)
        return bool(revision)

    async def lapsed(self, limit: int) -> list[TaskRecord]:
        """Return tasks that need a worker; remove some that have expired."""
        keys = (self._one, self._open, self._expiries)
        ids = await self._link.run(scripts.LAPSED, keys, (self._time(), "", limit, self._owners))
        found = await self._read_all(ids)
        return [task for task in found if task.status not in TERMINAL]

    async def delete(self, id: str) -> None:
        """Remove a task."""
        keys = (self._one + id, self._open, self._changes, self._expiries)
        given = (self._time(), id, self._writer, self._owners)
        await self._link.run(scripts.DELETE, keys, given)
        self._tell(id, 0)

    def _step(self, script: Script, id: str, *given: Argument) -> "asyncio.Future[Any]":
        """Run a script that changes one task."""
        keys = (self._one + id, self._open, self._changes)
        return self._link.run(script, keys, (self._time(), id, self._writer, *given))

    def _time(self) -> str | float:
        return "" if self._now is None else self._now()

    # Hearing of changes

    def watch(
        self, hear: HearTask, wanted: Callable[[], bool], missed: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call a function for each change: own ones in the next turn, others as the stream is read."""
        entry = (hear, wanted, missed)
        self._hearers.append(entry)
        return lambda: self._hearers.remove(entry)

    def parts(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Return nothing: the bus reads the stream, and belongs to the whole store."""
        return {}

    def _tell(self, id: str, revision: int) -> None:
        if self._hearers:
            if not self._news:
                asyncio.get_running_loop().call_soon(self._spread)
            self._news[id] = revision

    def _spread(self) -> None:
        news, self._news = self._news, {}
        for hear, _, _ in list(self._hearers):
            for id, revision in news.items():
                hear(id, revision)

    def _heard(self, entry: Mapping[bytes, bytes], _id: bytes) -> None:
        if entry.get(b"w") == self._writer.encode():
            return
        id, _, revision = entry.get(b"m", b"").decode(errors="replace").rpartition(" ")
        for hear, wanted, _ in list(self._hearers):
            if wanted() and revision.isdigit():
                hear(id, int(revision))

    def _missed(self) -> None:
        for _, _, missed in list(self._hearers):
            if missed is not None:
                missed()
