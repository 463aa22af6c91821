"""One SQLite file and the thread that its statements run on.

Steps that were requested in one turn of the event loop are committed together, and answered once they are
on disk. If that fails, each is tried on its own, so that a step that fails does not affect the others.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mcpearl.stores.errors import StoreUnavailable

Statements = Callable[[sqlite3.Connection], Any]

_PATIENCE = 10.0  # seconds to wait for another process that writes
_MOST = 1000  # steps that are committed together


class _Statement(NamedTuple):
    work: Statements
    writes: bool
    done: "asyncio.Future[Any]"


class SqliteThread:
    """Runs steps on an SQLite file, in order.

    Args:
        path: The file; it is created if there is none.
        application: Marks files of this kind, as `PRAGMA application_id`.
        version: The version of the tables.
        schema: Creates the tables.
    """

    def __init__(self, path: Path, application: int, version: int, schema: str) -> None:
        self.path = path
        self._application = application
        self._version = version
        self._schema = schema
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = asyncio.Event()
        self._inbox: queue.SimpleQueue[list[_Statement] | None] = queue.SimpleQueue()
        self._turn: list[_Statement] = []  # requested in this turn of the loop
        self._broken: StoreUnavailable | None = None  # why the file could not be opened

    # On the event loop

    async def start(self) -> None:
        """Open the file; raises `StoreUnavailable` if that fails."""
        self._begin()
        await self.step(lambda connection: None, writes=False)

    def _begin(self) -> None:
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._broken = None
            self._closed = asyncio.Event()
            name = f"mcpearl-{self.path.name}"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()

    async def close(self) -> None:
        """Finish all steps, and close the file."""
        if self._thread is not None:
            self._hand_over()
            self._inbox.put(None)
            await self._closed.wait()
            self._thread = None

    def step(self, work: Statements, *, writes: bool) -> "asyncio.Future[Any]":
        """Run statements together with the others of this turn; the future has what they return."""
        self._begin()
        assert self._loop is not None
        done = self._loop.create_future()
        if not self._turn:
            self._loop.call_soon(self._hand_over)
        self._turn.append(_Statement(work, writes, done))
        return done

    def _hand_over(self) -> None:
        if self._turn:
            turn, self._turn = self._turn, []
            self._inbox.put(turn)

    def _settle(self, outcomes: list[tuple["asyncio.Future[Any]", Any]]) -> None:
        for done, outcome in outcomes:
            if done.done():
                continue
            if isinstance(outcome, BaseException):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

    # On the thread

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            connection = self._open()
        except StoreUnavailable as error:
            self._broken = error
        except (sqlite3.Error, OSError) as error:
            self._broken = self._unavailable(error)
        while (steps := self._take()) is not None:
            if connection is None:
                self._report([(step.done, self._broken) for step in steps])
            else:
                self._report(self._run(connection, steps))
        if connection is not None:
            connection.close()
        self._on_loop(self._closed.set)

    def _take(self) -> list[_Statement] | None:
        """Wait for steps, and return all that are queued; None at the end."""
        steps = self._inbox.get()
        while steps is not None and len(steps) < _MOST and not self._inbox.empty():
            more = self._inbox.get()
            if more is None:
                self._inbox.put(None)
                break
            steps = steps + more
        return steps

    def _report(self, outcomes: list[tuple["asyncio.Future[Any]", Any]]) -> None:
        self._on_loop(self._settle, outcomes)

    def _on_loop(self, action: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._loop.call_soon_threadsafe(action, *arguments)

    def _run(
        self, connection: sqlite3.Connection, steps: list[_Statement]
    ) -> list[tuple["asyncio.Future[Any]", Any]]:
        try:
            return self._commit(connection, steps)
        except sqlite3.Error as error:
            if len(steps) == 1:
                return [(steps[0].done, self._unavailable(error))]
        return [outcome for step in steps for outcome in self._run(connection, [step])]

    def _commit(
        self, connection: sqlite3.Connection, steps: list[_Statement]
    ) -> list[tuple["asyncio.Future[Any]", Any]]:
        writes = any(step.writes for step in steps)
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            outcomes = []
            for step in steps:
                try:
                    outcome = step.work(connection)
                except sqlite3.Error:
                    raise
                except Exception as error:
                    outcome = error
                outcomes.append((step.done, outcome))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes

    def _open(self) -> sqlite3.Connection:
        # No other user of the machine may read it; SQLite's other files get the same mode.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=_PATIENCE)
        try:
            self._check(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            if _pragma(connection, "user_version") == 0:
                for statement in self._schema.split(";;"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self._application}")
                connection.execute(f"PRAGMA user_version = {self._version}")
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file of another program or a newer version, before anything is written to it."""
        is_new = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if is_new and _pragma(connection, "user_version") == 0:
            return
        if _pragma(connection, "application_id") != self._application:
            raise StoreUnavailable(f"{self.path} is a database of another program")
        found = _pragma(connection, "user_version")
        if found > self._version:
            raise StoreUnavailable(
                f"{self.path} was written by a newer mcpearl (version {found} of its tables; this "
                f"one knows {self._version}); update mcpearl, or use another file"
            )

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{self.path}: {error}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
