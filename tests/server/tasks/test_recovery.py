"""Tasks on disk: what becomes of them when their process is killed, stopped, or starts again."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Server, Tasks
from mcpearl.stores.errors import TOLD
from mcpearl.stores.sqlite_tasks import SqliteTaskStore
from tests.ports import free_port
from tests.server.tasks.apps import WITH, look, outcome, start, status
from tests.server.tasks.dying import dying_app, effects
from tests.server.tasks.http import Caller
from tests.server.wire import MODERN, text_of, wire
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def served(folder: Path, workers: int = 1) -> AsyncIterator[tuple[int, int]]:
    """Serve the app in another process; yield its process id and port."""
    port = free_port()
    command = [sys.executable, "-m", "tests.server.tasks.dying", str(folder), str(port)]
    process = subprocess.Popen([*command, str(workers)], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        await eventually(lambda: Caller(port).is_up())
        yield process.pid, port
    finally:
        if process.poll() is None:
            process.terminate()
        await asyncio.to_thread(process.wait)


async def left_behind(folder: Path, *calls: tuple[str, str], until: Any) -> list[str]:
    """Start tasks in a process that is killed once `until` is true; return their ids."""
    (folder / "held").touch()
    async with served(folder) as (pid, port):
        caller = Caller(port)
        ids = [(await caller.call(tool, {"key": key}))["taskId"] for tool, key in calls]
        await eventually(lambda: until(caller, ids))
        os.kill(pid, signal.SIGKILL)
    (folder / "held").unlink()
    return ids


async def test_a_task_that_may_have_run_fails_and_is_not_run_again(tmp_path: Path) -> None:
    (id,) = await left_behind(tmp_path, ("acts", "a"), until=lambda *_: effects(tmp_path))
    async with wire(dying_app(tmp_path), MODERN, WITH) as client:
        task = await status(client, id, "failed")
        assert "may have run" in task["error"]["message"]
        assert task["error"]["data"]["mayHaveRun"] is True and task["statusMessage"]
    assert effects(tmp_path) == ["a"]


async def test_a_repeatable_task_is_run_again_from_its_journal(tmp_path: Path) -> None:
    calls = (("repeats", "a"), ("idempotent", "b"))
    ids = await left_behind(tmp_path, *calls, until=lambda *_: effects(tmp_path) == ["once a"])
    async with wire(dying_app(tmp_path), MODERN, WITH) as client:
        assert text_of(await outcome(client, ids[0])) == "repeated a"
        assert text_of(await outcome(client, ids[1])) == "done b"
    assert sorted(effects(tmp_path)) == ["a", "b", "once a"]


async def test_a_task_that_waited_for_its_client_goes_on(tmp_path: Path) -> None:
    async def asking(caller: Caller, ids: list[str]) -> bool:
        return (await caller.look(ids[0]))["status"] == "input_required"

    (id,) = await left_behind(tmp_path, ("asks", "a"), until=asking)
    async with wire(dying_app(tmp_path), MODERN, WITH) as client:
        task = await look(client, id)
        assert task["status"] == "input_required" and set(task["inputRequests"]) == {
            "elicitation-1"
        }
        answers = {"elicitation-1": {"action": "accept", "content": {"name": "ann"}}}
        await client.ask("tasks/update", {"taskId": id, "inputResponses": answers})
        assert text_of(await outcome(client, id)) == "ann a"
    assert effects(tmp_path) == ["a"]


async def test_a_task_that_kills_its_workers_fails_in_the_end(tmp_path: Path) -> None:
    ids: list[str] = []
    for deaths in range(4):  # the first run, and three more
        (tmp_path / "held").touch()
        async with served(tmp_path) as (pid, port):
            caller = Caller(port)
            if not ids:
                ids.append((await caller.call("repeats", {"key": "a"}))["taskId"])
            await eventually(lambda deaths=deaths: row(tmp_path, ids[0]) == (1, 1, deaths))
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: row(tmp_path, ids[0])[1] == 0)
    async with wire(dying_app(tmp_path), MODERN, WITH) as client:
        task = await status(client, ids[0], "failed")
        assert "4 times" in task["error"]["message"]


def row(folder: Path, id: str) -> tuple[Any, ...]:
    with sqlite3.connect(folder / "tasks.db") as reader:
        statement = "SELECT running, lease_until > ?, deaths FROM tasks WHERE id = ?"
        found: tuple[Any, ...] = reader.execute(statement, (time.time(), id)).fetchone()
    return found


async def test_a_task_that_has_not_begun_is_begun_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "held").touch()
    first = dying_app(tmp_path, max_running=1)
    async with wire(first, MODERN, WITH) as client:
        ids = [await start(client, "acts", {"key": key}) for key in "ab"]
        await eventually(lambda: effects(tmp_path) == ["a"])
        assert (await look(client, ids[1]))["status"] == "working"
    # The server was stopped: what ran may have run, what waited for its turn has not.
    (tmp_path / "held").unlink()
    async with wire(dying_app(tmp_path), MODERN, WITH) as client:
        assert "may have run" in (await status(client, ids[0], "failed"))["statusMessage"]
        assert text_of(await outcome(client, ids[1])) == "acted b"
    assert effects(tmp_path) == ["a", "b"]


async def test_tasks_wait_for_their_turn(tmp_path: Path) -> None:
    (tmp_path / "held").touch()
    app = dying_app(tmp_path, max_running=2)
    async with wire(app, MODERN, WITH) as client:
        ids = [await start(client, "acts", {"key": str(n)}) for n in range(6)]
        await eventually(lambda: len(effects(tmp_path)) == 2)
        await client.ask("tasks/cancel", {"taskId": ids[3]})
        (tmp_path / "held").unlink()
        for id in ids:
            await status(client, id, "completed", "cancelled")
    assert sorted(effects(tmp_path)) == ["0", "1", "2", "4", "5"]


async def test_the_result_is_there_after_a_restart(tmp_path: Path) -> None:
    async with wire(dying_app(tmp_path), MODERN, WITH) as client:
        id = await start(client, "acts", {"key": "a"})
        await status(client, id, "completed")
    async with wire(dying_app(tmp_path), MODERN, WITH) as client:
        assert text_of(await outcome(client, id)) == "acted a"


async def test_leases_that_could_not_be_kept_are_looked_at_again(tmp_path: Path) -> None:
    app = dying_app(tmp_path)

    def failures() -> int:
        node = app.tree().find("leases of tasks")
        assert node is not None
        assert node.state == "running"
        return node.restarts

    async with wire(app, MODERN, WITH) as client:
        assert failures() == 0
        with closing(sqlite3.connect(tmp_path / "tasks.db")) as database:
            database.execute("ALTER TABLE tasks RENAME TO elsewhere")
            await eventually(failures)
            database.execute("ALTER TABLE elsewhere RENAME TO tasks")
        # A task of another process, whose lease lapses, is taken up here.
        (id,) = await left_behind(tmp_path, ("acts", "a"), until=lambda *_: effects(tmp_path))
        assert "may have run" in (await status(client, id, "failed"))["error"]["message"]


async def test_what_polls_for_changes_of_other_processes_is_restarted(tmp_path: Path) -> None:
    app = dying_app(tmp_path)
    async with served(tmp_path) as (_, port), wire(app, MODERN, WITH) as here:
        assert app.parts.kill("changes of tasks")
        await eventually(lambda: app.tree().find("changes of tasks").restarts == 1)  # type: ignore[union-attr]
        there = Caller(port)
        id = (await there.call("asks", {"key": "a"}))["taskId"]
        await status(here, id, "input_required")
    assert app.tree().find("changes of tasks") is None


async def test_two_processes_serve_the_same_task(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, port), wire(dying_app(tmp_path), MODERN, WITH) as here:
        there = Caller(port)
        id = (await there.call("asks", {"key": "a"}))["taskId"]
        await status(here, id, "input_required")
        answers = {"elicitation-1": {"action": "accept", "content": {"name": "ann"}}}
        await here.ask("tasks/update", {"taskId": id, "inputResponses": answers})
        assert text_of(await outcome(here, id)) == "ann a"
        (tmp_path / "held").touch()
        id = (await there.call("acts", {"key": "b"}))["taskId"]
        await eventually(lambda: "b" in effects(tmp_path))
        await here.ask("tasks/cancel", {"taskId": id})
        assert (await there.look(id))["status"] == "cancelled"


# What is on the disk


async def test_contents_are_sealed(tmp_path: Path) -> None:
    async with wire(dying_app(tmp_path), MODERN, WITH) as client:
        id = await start(client, "asks", {"key": "secret-argument"})
        await status(client, id, "input_required")
        answers = {"elicitation-1": {"action": "accept", "content": {"name": "secret-answer"}}}
        await client.ask("tasks/update", {"taskId": id, "inputResponses": answers})
        assert "secret-answer secret-argument" in text_of(await outcome(client, id))
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("tasks.db*"))
        assert id.encode() in stored
        assert b"secret-a" not in stored


async def test_without_keys_one_is_made_beside_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def app() -> Server:
        made = Server("x", store=f"sqlite:///{tmp_path}/tasks.db", grace=0)

        @made.tool(task=True)
        async def works() -> str:
            return "worked"

        return made

    async with wire(app(), MODERN, WITH) as client:
        id = await start(client, "works")
        await status(client, id, "completed")
    assert (tmp_path / "tasks.db.key").stat().st_mode & 0o777 == 0o600
    async with wire(app(), MODERN, WITH) as client:
        assert text_of(await outcome(client, id)) == "worked"
    (tmp_path / "tasks.db.key").write_bytes(b"x" * 32)
    async with wire(app(), MODERN, WITH) as client:
        lost = await client.ask("tasks/get", {"taskId": id})
        assert (lost["error"]["code"], lost["error"]["message"]) == (-32603, TOLD)
        assert "give the server the `state_keys` it had" in caplog.text


@pytest.mark.parametrize(
    ("address", "said"),
    [("mysql://x", "not the address of a store"), ("sqlite:///", "not the address of a store")],
)
def test_an_address_that_is_not_one(address: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Server("x", store=address)


async def test_a_store_that_cannot_be_opened_keeps_the_server_from_starting(
    tmp_path: Path,
) -> None:
    app = Server("x", store=f"sqlite:///{tmp_path}/nowhere/tasks.db")

    @app.tool(task=Tasks())
    async def works() -> None: ...

    with pytest.raises(Exception, match="nowhere"):
        async with app.running():
            pass


async def test_calls_that_come_together_open_the_store_once(tmp_path: Path) -> None:
    """The store of a server whose first tool with tasks is added while it runs."""
    starts = []

    class Counted(SqliteTaskStore):
        async def start(self) -> None:
            starts.append(None)
            await super().start()

    app = Server("x", store=Counted(tmp_path / "tasks.db"), grace=0)
    async with wire(app, MODERN, WITH) as client:

        @app.tool(task="required")
        async def double(n: int) -> int:
            return 2 * n

        started = [client.request("tools/call", call_of("double", n=n)) for n in range(10)]
        ids = [(await client.answer_to(id))["result"]["taskId"] for id in started]
        results = [text_of(await outcome(client, id)) for id in ids]
    assert results == [str(2 * n) for n in range(10)]
    assert len(starts) == 1


def call_of(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}
