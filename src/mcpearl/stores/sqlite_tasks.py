"""Tasks in an SQLite file: they survive the process, and the workers of one machine share them.

Changes made by another process are noticed by the file's data version, which is polled while any watcher
wants to hear of them.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.runtime import clock
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.sessions import Identity
from mcpearl.stores.sqlite_thread import SqliteThread
from mcpearl.stores.tasks import HearTask, TaskRecord, TasksFull

VERSION = 1  # of the tables
APPLICATION = 0x6D637074  # marks files of this kind
_LOOK = 0.05  # seconds between two looks for changes of other processes
_EXPIRED_AT_ONCE = 1000

_FIELDS = tuple(field.name for field in msgspec.structs.fields(TaskRecord))
_COLUMNS = ", ".join(_FIELDS)
_SCHEMA = """
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    change INTEGER NOT NULL,
    expires REAL NOT NULL,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    ttl REAL NOT NULL,
    poll REAL,
    status TEXT NOT NULL,
    status_message TEXT,
    request BLOB NOT NULL,
    journal BLOB NOT NULL,
    result BLOB,
    tool_error INTEGER NOT NULL,
    repeatable INTEGER NOT NULL,
    running INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    revision INTEGER NOT NULL,
    holder TEXT,
    fence INTEGER NOT NULL,
    lease_until REAL NOT NULL
);;
CREATE INDEX by_owner ON tasks (owner, number);;
CREATE INDEX by_expiry ON tasks (expires);;
CREATE INDEX by_change ON tasks (change);;
CREATE INDEX open_ones ON tasks (lease_until) WHERE status IN ('working', 'input_required');;
CREATE TABLE changes (last INTEGER NOT NULL);;
INSERT INTO changes VALUES (0);;
CREATE TABLE counts (owner TEXT PRIMARY KEY, tasks INTEGER NOT NULL) WITHOUT ROWID;;
CREATE TRIGGER added AFTER INSERT ON tasks BEGIN
    INSERT INTO counts VALUES (NEW.owner, 1)
        ON CONFLICT (owner) DO UPDATE SET tasks = tasks + 1;
    INSERT INTO counts VALUES ('*', 1)
        ON CONFLICT (owner) DO UPDATE SET tasks = tasks + 1;
END;;
CREATE TRIGGER removed AFTER DELETE ON tasks BEGIN
    UPDATE counts SET tasks = tasks - 1 WHERE owner IN (OLD.owner, '*');
    DELETE FROM counts WHERE owner = OLD.owner AND tasks = 0;
END
"""
_GET = f"SELECT {_COLUMNS} FROM tasks WHERE id = ? AND expires > ?"
_PAGE = (
    f"SELECT {_COLUMNS} FROM tasks WHERE owner = ? AND number > ? AND expires > ? "
    "ORDER BY number LIMIT ?"
)
_COUNT_CHANGE = "UPDATE changes SET last = last + 1"
_LAST_CHANGE = "(SELECT last FROM changes)"
_INSERT = (
    f"INSERT INTO tasks ({_COLUMNS}, expires, change) "
    f"VALUES ({', '.join('?' for _ in _FIELDS)}, ?, {_LAST_CHANGE})"
)
# Members that never change: SQLite would write the indexes that they are in again.
_FIXED = ("id", "owner", "ttl", "created")
_CHANGING = tuple(name for name in _FIELDS if name not in _FIXED)
_REPLACE = (
    f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in _CHANGING)}, change = {_LAST_CHANGE} "
    "WHERE id = ?"
)
_HELD = (
    "SELECT owner, created, ttl, revision, fence, holder, lease_until, status FROM tasks "
    "WHERE id = ? AND expires > ?"
)
_LAPSED = (
    f"SELECT {_COLUMNS} FROM tasks WHERE status IN ('working', 'input_required') "
    "AND lease_until <= ? AND expires > ? AND NOT (status = 'input_required' AND holder IS NULL) "
    "ORDER BY lease_until LIMIT ?"
)
_ROOM = (
    "SELECT (SELECT tasks FROM counts WHERE owner = '*'), (SELECT tasks FROM counts WHERE owner = ?), "
    "EXISTS (SELECT 1 FROM tasks WHERE expires <= ?)"
)
_EXPIRE = "DELETE FROM tasks WHERE number IN (SELECT number FROM tasks WHERE expires <= ? LIMIT ?)"


class SqliteTaskStore:
    """A `TaskStore` in a file.

    Args:
        path: The file; it is created if there is none. The folder must exist.
        max_tasks: The most tasks the store keeps.
        max_per_owner: The most tasks of one identity.
    """

    durable = True

    def __init__(
        self, path: str | Path, max_tasks: int = 100_000, max_per_owner: int = 10_000
    ) -> None:
        self.path = Path(path)
        self._max = max_tasks
        self._max_per_owner = max_per_owner
        self._file = SqliteThread(self.path, APPLICATION, VERSION, _SCHEMA)
        self._hearers: list[tuple[HearTask, Callable[[], bool]]] = []
        self._heard = 0  # the last change that was passed to hearers
        self._news: dict[str, int] = {}  # own changes not passed to hearers yet
        self._data_version = 0

    async def start(self) -> None:
        """Open the file. Raises `StoreUnavailable` if it is not a file of this store."""
        await self._file.start()
        await self._read(self._look)

    async def close(self) -> None:
        """Finish all steps, and close the file."""
        await self._file.close()

    # Steps

    async def create(self, task: TaskRecord, holder: str, lease: float) -> TaskRecord:
        """Store a new task with its first lease."""
        now = clock.now()
        held = {"holder": holder, "fence": 1, "lease_until": now + lease}
        task = replace(task, created=now, updated=now, revision=1, **held)

        def work(connection: sqlite3.Connection) -> None:
            self._check_room(connection, task.owner, now)
            try:
                connection.execute(_COUNT_CHANGE)
                connection.execute(_INSERT, (*_row(task), now + task.ttl))
            except sqlite3.IntegrityError:
                raise ValueError("a task with this id exists") from None

        await self._file.step(work, writes=True)
        return task

    def _check_room(self, connection: sqlite3.Connection, owner: Identity, now: float) -> None:
        given = (_owner(owner), now)
        in_all, own, some_expired = connection.execute(_ROOM, given).fetchone()
        if some_expired:
            connection.execute(_EXPIRE, (now, _EXPIRED_AT_ONCE))
            in_all, own, _ = connection.execute(_ROOM, given).fetchone()
        if (in_all or 0) >= self._max:
            raise TasksFull(f"there are {self._max} tasks already")
        if (own or 0) >= self._max_per_owner:
            raise TasksFull(f"this owner has {self._max_per_owner} tasks already")

    async def get(self, id: str, owner: Identity) -> TaskRecord | None:
        """Return a task to its owner."""
        now = clock.now()
        task = await self._read(lambda connection: _find(connection, id, now))
        return task if task is not None and task.owner == owner else None

    async def page(self, owner: Identity, after: str | None, limit: int) -> list[TaskRecord]:
        """Return a page of an owner's tasks."""
        now = clock.now()

        def work(connection: sqlite3.Connection) -> list[TaskRecord]:
            number = 0
            if after is not None:
                found = connection.execute(
                    "SELECT number FROM tasks WHERE id = ? AND owner = ?", (after, _owner(owner))
                ).fetchone()
                if found is None:
                    return []
                number = found[0]
            rows = connection.execute(_PAGE, (_owner(owner), number, now, limit))
            return [_record(row) for row in rows]

        found: list[TaskRecord] = await self._read(work)
        return found

    async def update(
        self, task: TaskRecord, expected: int, fence: int | None = None
    ) -> TaskRecord | None:
        """Replace a task that did not change since it was read."""
        now = clock.now()

        def work(connection: sqlite3.Connection) -> TaskRecord | None:
            stored = connection.execute(_HELD, (task.id, now)).fetchone()
            if stored is None:
                return None
            owner, created, ttl, revision, current, holder, lease_until, status = stored
            if status in TERMINAL or revision != expected:
                return None
            if fence is not None and current != fence:
                return None
            over = task.status in TERMINAL
            changed = replace(
                task,
                owner=_identity(owner),
                created=created,
                ttl=ttl,
                revision=revision,
                fence=current,
                holder=None if over else holder,
                lease_until=0.0 if over else lease_until,
            )
            return _write(connection, changed, now)

        return await self._change(work)

    async def claim(self, id: str, holder: str, lease: float) -> TaskRecord | None:
        """Take a free lease."""
        now = clock.now()

        def work(connection: sqlite3.Connection) -> TaskRecord | None:
            task = _find(connection, id, now)
            if task is None or task.status in TERMINAL:
                return None
            if task.holder is not None and task.lease_until > now:
                return None
            claimed = replace(task, holder=holder, fence=task.fence + 1, lease_until=now + lease)
            return _write(connection, claimed, now)

        return await self._change(work)

    async def renew(self, fences: Mapping[str, int], lease: float) -> set[str]:
        """Extend leases that are still held. A lease that lapsed unnoticed is extended, too."""
        now = clock.now()
        statement = (
            "UPDATE tasks SET lease_until = ? "
            "WHERE id = ? AND fence = ? AND holder IS NOT NULL AND expires > ?"
        )

        def work(connection: sqlite3.Connection) -> set[str]:
            return {
                id
                for id, fence in fences.items()
                if connection.execute(statement, (now + lease, id, fence, now)).rowcount
            }

        renewed: set[str] = await self._file.step(work, writes=True)
        return renewed

    async def release(self, id: str, fence: int) -> bool:
        """Release a lease."""
        now = clock.now()

        def work(connection: sqlite3.Connection) -> TaskRecord | None:
            task = _find(connection, id, now)
            if task is None or task.holder is None or task.fence != fence:
                return None
            return _write(connection, replace(task, holder=None, lease_until=0.0), now)

        return await self._change(work) is not None

    async def lapsed(self, limit: int) -> list[TaskRecord]:
        """Return tasks that need a worker; remove some that have expired."""
        now = clock.now()

        def work(connection: sqlite3.Connection) -> list[TaskRecord]:
            connection.execute(_EXPIRE, (now, _EXPIRED_AT_ONCE))
            return [_record(row) for row in connection.execute(_LAPSED, (now, now, limit))]

        found: list[TaskRecord] = await self._file.step(work, writes=True)
        return found

    async def delete(self, id: str) -> None:
        """Remove a task."""
        await self._file.step(
            lambda connection: connection.execute("DELETE FROM tasks WHERE id = ?", (id,)).rowcount,
            writes=True,
        )
        self._tell(id, 0)

    async def _read(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        return await self._file.step(work, writes=False)

    async def _change(
        self, work: Callable[[sqlite3.Connection], TaskRecord | None]
    ) -> TaskRecord | None:
        task: TaskRecord | None = await self._file.step(work, writes=True)
        if task is not None:
            self._tell(task.id, task.revision)
        return task

    # Hearing of changes

    def watch(
        self, hear: HearTask, wanted: Callable[[], bool], missed: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call a function for each change: own ones at once, others when the file is polled."""
        entry = (hear, wanted)
        self._hearers.append(entry)
        return lambda: self._hearers.remove(entry)

    def parts(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Return what polls the file for the changes of other processes."""
        return {"changes of tasks": self.look}

    def _tell(self, id: str, revision: int) -> None:
        if self._hearers:
            if not self._news:
                asyncio.get_running_loop().call_soon(self._spread_own)
            self._news[id] = revision

    def _spread_own(self) -> None:
        news, self._news = self._news, {}
        self._spread(news.items())

    def _spread(self, news: Iterable[tuple[str, int]]) -> None:
        for hear, _ in list(self._hearers):
            for id, revision in news:
                hear(id, revision)

    async def look(self) -> None:
        """Poll the file for ever, while changes of other processes are of interest."""
        while True:
            await asyncio.sleep(_LOOK)
            if any(wanted() for _, wanted in self._hearers):
                try:
                    news = await self._read(self._look)
                except StoreUnavailable:
                    continue  # callers that need the store get the error themselves
                if news:
                    self._spread(news)

    def _look(self, connection: sqlite3.Connection) -> list[tuple[str, int]]:
        """Return what changed since the last look, if another process wrote to the file."""
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._data_version:
            return []
        first, self._data_version = self._data_version == 0, version
        last = connection.execute("SELECT last FROM changes").fetchone()[0]
        since, self._heard = last if first else self._heard, last
        rows = connection.execute("SELECT id, revision FROM tasks WHERE change > ?", (since,))
        return list(rows)


def _find(connection: sqlite3.Connection, id: str, now: float) -> TaskRecord | None:
    row = connection.execute(_GET, (id, now)).fetchone()
    return None if row is None else _record(row)


def _write(connection: sqlite3.Connection, task: TaskRecord, now: float) -> TaskRecord:
    task = replace(task, revision=task.revision + 1, updated=now)
    connection.execute(_COUNT_CHANGE)
    connection.execute(_REPLACE, (*map(_plain, _changing(task)), task.id))
    return task


@lru_cache(maxsize=1024)
def _owner(owner: Identity) -> str:
    return msgspec.json.encode(owner).decode()


@lru_cache(maxsize=1024)
def _identity(owner: str) -> Identity:
    return cast("Identity", _identity_decoder.decode(owner))


_identity_decoder = msgspec.json.Decoder(Identity)
_members = attrgetter(*_FIELDS)
_changing = attrgetter(*_CHANGING)
_OWNER = _FIELDS.index("owner")


def _row(task: TaskRecord) -> list[Any]:
    row = [_plain(value) for value in _members(task)]
    row[_OWNER] = _owner(task.owner)
    return row


def _plain(value: Any) -> Any:
    """Return a value as a type that `sqlite3` takes as it is; it looks for adapters for all others."""
    kind = type(value)
    return bytearray(value) if kind is bytes else int(value) if kind is bool else value


def _record(row: tuple[Any, ...]) -> TaskRecord:
    members = dict(zip(_FIELDS, row, strict=True))
    members["owner"] = _identity(members["owner"])
    for flag in ("tool_error", "repeatable", "running"):
        members[flag] = bool(members[flag])
    return TaskRecord(**members)
