"""Listeners of tasks: each `subscriptions/listen` with `taskIds` gets `notifications/tasks`.

A notification says what `tasks/get` would return when it is sent. The first one follows the
acknowledgement, so a listener misses nothing between its last request and its subscription.
"""

from typing import TYPE_CHECKING

from mcpearl.protocol.capabilities import require
from mcpearl.protocol.events import Call
from mcpearl.server.subscriptions import Announcement, Subscriber
from mcpearl.server.tasks.journal import owner_of
from mcpearl.server.tasks.views import notice
from mcpearl.stores.sessions import Identity
from mcpearl.types.capabilities import TASKS_EXTENSION

if TYPE_CHECKING:
    from mcpearl.server.tasks.engine import TaskEngine


class TaskFeed:
    """The listeners of a process, by task."""

    def __init__(self, engine: "TaskEngine") -> None:
        self.engine = engine
        self._followers: dict[str, dict[Subscriber, None]] = {}
        self._owners: dict[str, Identity] = {}
        self._reading: set[str] = set()  # tasks that are being read for their listeners
        self._again: set[str] = set()  # of these, those that changed meanwhile
        self._told: dict[str, int] = {}  # the revisions that the listeners know

    def __bool__(self) -> bool:
        return bool(self._followers)

    def ids(self) -> list[str]:
        """Return the tasks that have listeners."""
        return list(self._followers)

    async def agree(self, ids: list[str], call: Call) -> list[str]:
        """Return the tasks among these that belong to the caller.

        Raises `MissingClientCapability` if the caller did not declare the extension.
        """
        require(call.caller.capabilities, f"extensions.{TASKS_EXTENSION}")
        await self.engine.awake()
        store, owner = self.engine.store, owner_of(call)
        unique = dict.fromkeys(ids)
        return [id for id in unique if await store.get(id, owner) is not None]

    def follow(self, subscriber: Subscriber, ids: list[str], call: Call) -> None:
        """Notify a listener of these tasks, at once and whenever they change."""
        for id in ids:
            self._followers.setdefault(id, {})[subscriber] = None
            self._owners[id] = owner_of(call)
            self.changed(id)

    def leave(self, subscriber: Subscriber) -> None:
        """Forget a listener."""
        for id in [id for id, found in self._followers.items() if subscriber in found]:
            found = self._followers[id]
            del found[subscriber]
            if not found:
                self._forget(id)

    def _forget(self, id: str) -> None:
        del self._followers[id]
        del self._owners[id]
        self._told.pop(id, None)

    def changed(self, id: str, revision: int = 0) -> None:
        """Notify the listeners of a task.

        Args:
            id: The task.
            revision: Its revision, which the listeners may know already; 0 to notify them in any case.
        """
        if id not in self._followers or 0 < revision <= self._told.get(id, 0):
            return
        if id in self._reading:
            self._again.add(id)
        else:
            self._reading.add(id)
            self.engine.beside(self._notify(id))

    async def _notify(self, id: str) -> None:
        engine = self.engine
        try:
            while id in self._followers:
                self._again.discard(id)
                record = await engine.store.get(id, self._owners[id])
                if record is None:
                    if id in self._followers:
                        self._forget(id)
                    return
                params = notice(record, engine.contents)
                announcement = Announcement("notifications/tasks", params)
                if id in self._followers:
                    self._told[id] = record.revision
                for subscriber in list(self._followers.get(id, ())):
                    subscriber.deliver(announcement)
                if id not in self._again:
                    return
        finally:
            self._reading.discard(id)
