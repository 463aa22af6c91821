"""Tasks as records: work that outlives its request, and perhaps the process that runs it.

A task is run by one worker at a time, which holds a lease on it. Taking a lease raises the task's
*fence*; a worker passes the fence it got with each write, so that a worker that was believed dead and
comes back can change nothing. All changes go through `update`, which succeeds only for the writer that
saw the latest *revision*: clients that answer or cancel and the worker that finishes cannot overwrite
each other, and each task ends in exactly one way.

Leases and expiry are measured by the store's own clock, since the clocks of workers differ. Contents
(`request`, `journal`, `result`) are opaque here; the server seals them before they are stored.
"""

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from mcpearl.runtime import clock
from mcpearl.stores.sessions import Identity
from mcpearl.types.tasks import TaskStatus

HearTask = Callable[[str, int], None]
"""Called with the id of a task and its new revision; 0 when the task is gone."""


_PLACE = "/"  # between the machine and the process, in the name of a holder


def holder_name() -> str:
    """Return a unique name for this process as a holder of leases."""
    return f"{socket.gethostname()}{_PLACE}{os.getpid()}-{clock.token(6)}"


def machine_in(holder: str) -> str:
    """Return the machine of a holder."""
    return holder.rpartition(_PLACE)[0]


class TaskRecord(Struct, frozen=True, kw_only=True, gc=False):
    """All that is stored of a task."""

    id: str
    """Unguessable; made by the server."""
    owner: Identity
    """Only this identity can see the task."""
    ttl: float
    """Seconds from its creation until it expires."""
    poll: float | None = None
    """Seconds a client should wait between two polls."""
    status: TaskStatus = "working"
    status_message: str | None = None
    request: bytes = b""
    """What to run: method and params."""
    journal: bytes = b""
    """Questions to the client, their answers and the results of `ctx.once`, for running it again."""
    result: bytes | None = None
    """The result or the error, once the status is terminal."""
    tool_error: bool = False
    """Whether the result is a tool's own report that it failed."""
    repeatable: bool = False
    """Whether it may be run again after a worker died in the middle of it."""
    running: bool = True
    """Whether its handler may be at work. False before the handler begins and while it waits for input:
    if the worker dies then, the task can be run again."""
    deaths: int = 0
    """How many workers died while they ran it."""
    created: float = 0.0
    """When it was created, in seconds since 1970. Set by the store, as are all fields below."""
    updated: float = 0.0
    """When it was last written."""
    revision: int = 0
    """Increased by one with every change; 1 after `create`."""
    holder: str | None = None
    """The worker that holds the lease; None when no worker runs the task."""
    fence: int = 0
    """Increased by one with every claim; 1 after `create`."""
    lease_until: float = 0.0
    """When the lease lapses unless it is renewed."""


class TasksFull(Exception):
    """The store, or one owner, has as many tasks as allowed."""


class TaskStore(Protocol):
    """Keeps task records. Each method is one atomic step and may raise `StoreUnavailable`.

    A task expires, in whatever state, when its time to live is over; from then on it is unknown.
    """

    durable: bool
    """Whether tasks outlive the process. Their contents are sealed then."""

    async def start(self) -> None:
        """Make the store ready. Raises `StoreUnavailable` if that is not possible."""
        ...

    async def close(self) -> None:
        """Finish what was begun, and release everything."""
        ...

    async def create(self, task: TaskRecord, holder: str, lease: float) -> TaskRecord:
        """Store a new task with its first lease. When this returns, the task will not be lost.

        Args:
            task: The new task; times, revision, holder and fence are set by the store.
            holder: The name of the worker that runs it.
            lease: Seconds until the lease lapses.

        Returns:
            The task as stored.

        Raises:
            TasksFull: A bound on the number of tasks is reached.
            ValueError: The id is taken.
        """
        ...

    async def get(self, id: str, owner: Identity) -> TaskRecord | None:
        """Return a task of this owner; a task of another owner is treated as unknown."""
        ...

    async def page(self, owner: Identity, after: str | None, limit: int) -> list[TaskRecord]:
        """Return up to `limit` tasks of an owner in the order they were created.

        Args:
            owner: The owner of the tasks.
            after: The id of the last task of the previous page. If that task has expired meanwhile, the
                page is empty.
            limit: The most tasks to return.
        """
        ...

    async def update(
        self, task: TaskRecord, expected: int, fence: int | None = None
    ) -> TaskRecord | None:
        """Replace a task if nothing changed since it was read.

        Contents, status, message and the flags are taken from `task`; owner, times, holder, lease and
        fence are kept as stored. A terminal status ends the lease.

        Args:
            task: The new state of the task.
            expected: The revision that it was made from.
            fence: The fence of the worker that writes; None for a writer that does not run the task.

        Returns:
            The task as stored; None, with nothing written, when the revision is not the expected
            one, the fence is not the current one, or the task is terminal or unknown.
        """
        ...

    async def claim(self, id: str, holder: str, lease: float) -> TaskRecord | None:
        """Take the lease of a task that has none, or whose lease has lapsed.

        Args:
            id: The task.
            holder: The name of the worker.
            lease: Seconds until the lease lapses.

        Returns:
            The task, with a raised fence; None when another worker holds it or it is terminal.
        """
        ...

    async def renew(self, fences: Mapping[str, int], lease: float) -> set[str]:
        """Extend the leases of many tasks in one step; the revision does not change.

        Args:
            fences: The tasks, each with the fence it was claimed with.
            lease: Seconds from now.

        Returns:
            The ids of tasks whose lease was extended. The worker must stop running all others.
        """
        ...

    async def release(self, id: str, fence: int) -> bool:
        """Release a lease, so that any worker may claim the task; False when it was lost before."""
        ...

    async def lapsed(self, limit: int) -> list[TaskRecord]:
        """Return up to `limit` tasks that need a worker, those with the oldest lease first.

        These are the tasks that are not terminal and whose lease lapsed or was released. A task that
        is `input_required` and has no holder is parked: it waits for a client, not for a worker.
        """
        ...

    def watch(
        self, hear: HearTask, wanted: Callable[[], bool], missed: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call a function soon after each change, whether this process or another made it.

        Args:
            hear: Called on the event loop, never while a step of this store is awaited.
            wanted: Returns whether changes made by other processes are of interest at the moment.
            missed: Called when changes made by other processes may not have been heard of.

        Returns:
            A function that ends the watch.
        """
        ...

    def parts(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Return what has to run while changes are watched, by its name in the tree."""
        ...

    async def delete(self, id: str) -> None:
        """Remove a task; an unknown id is ignored."""
        ...
