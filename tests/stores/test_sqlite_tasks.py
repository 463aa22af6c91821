"""The SQLite store beyond what every store does: processes, kills, bad files, full disks."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.sessions import Identity
from mcpearl.stores.sqlite_tasks import APPLICATION, SqliteTaskStore
from mcpearl.stores.tasks import TaskRecord
from tests.waiting import eventually

ANN: Identity = ("issuer", "ann", None)
LEASE = 30.0


def task(id: str, **more: Any) -> TaskRecord:
    return TaskRecord(id=id, owner=ANN, ttl=3600.0, request=b"request", **more)


def run_code(path: Path, code: str) -> "subprocess.Popen[str]":
    """Run async code in another process, with a started `store` on the same file."""
    program = f"""
import asyncio, os, signal, sys
from msgspec.structs import replace
from mcpearl.stores.sqlite_tasks import SqliteTaskStore
from mcpearl.stores.tasks import TaskRecord
ANN = ("issuer", "ann", None)

async def main():
    store = SqliteTaskStore({str(path)!r})
    await store.start()
{textwrap.indent(textwrap.dedent(code), "    ")}

asyncio.run(main())
"""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


async def finished(process: "subprocess.Popen[str]") -> str:
    out, _ = await asyncio.to_thread(process.communicate)
    return out


# What is on disk


async def test_a_store_that_is_opened_again_has_everything(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    first = SqliteTaskStore(path)
    await first.start()
    made = await first.create(task("t", repeatable=True, running=False), "w1", LEASE)
    done = await first.update(
        replace(made, status="completed", result=b"\0\xff", tool_error=True), 1, fence=1
    )
    await first.close()
    second = SqliteTaskStore(path)
    await second.start()
    assert await second.get("t", ANN) == done
    await second.close()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_steps_of_one_turn_are_one_transaction(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteTaskStore(path)
    await store.start()
    before = path.with_name("tasks.db-wal").stat().st_size
    await store.create(task("one"), "w", LEASE)
    single = path.with_name("tasks.db-wal").stat().st_size - before
    await asyncio.gather(*(store.create(task(f"t{n}"), "w", LEASE) for n in range(50)))
    together = path.with_name("tasks.db-wal").stat().st_size - before - single
    # A commit writes whole pages: fifty of them would have written fifty times as much.
    assert together < 10 * single
    await store.close()


async def test_one_step_that_cannot_be_done_costs_no_other(tmp_path: Path) -> None:
    store = SqliteTaskStore(tmp_path / "tasks.db")
    await store.start()
    await store.create(task("t"), "w", LEASE)
    outcomes = await asyncio.gather(
        store.create(task("a"), "w", LEASE),
        store.create(task("t"), "w", LEASE),
        store.create(task("b"), "w", LEASE),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], ValueError)
    assert await store.get("a", ANN) is not None and await store.get("b", ANN) is not None
    await store.close()


# Several processes


async def test_two_processes_share_tasks_and_hear_of_changes(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteTaskStore(path)
    await store.start()
    heard: list[tuple[str, int]] = []
    store.watch(lambda id, revision: heard.append((id, revision)), lambda: True)
    (looking,) = (asyncio.ensure_future(run()) for run in store.parts().values())
    made = await store.create(task("t"), "w1", LEASE)
    other = run_code(
        path,
        """
        found = await store.get("t", ANN)
        assert found is not None and await store.claim("t", "w2", 5.0) is None
        changed = await store.update(replace(found, status_message="from there"), found.revision)
        assert changed is not None
        await store.close()
        """,
    )
    await finished(other)
    assert other.returncode == 0
    await eventually(lambda: ("t", 2) in heard, otherwise=lambda: heard)
    assert await store.update(made, 1) is None
    found = await store.get("t", ANN)
    assert found is not None and found.status_message == "from there"
    looking.cancel()
    await store.close()


async def test_only_one_of_many_processes_claims_a_task(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteTaskStore(path)
    await store.start()
    for number in range(30):
        await store.create(task(f"t{number}"), "w1", LEASE)
        await store.release(f"t{number}", 1)
    claim = """
        sys.stdin.readline()
        got = [n for n in range(30) if await store.claim(f"t{n}", str(os.getpid()), 60.0)]
        print(*got)
        await store.close()
        """
    others = [run_code(path, claim) for _ in range(3)]
    for other in others:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
    claimed = [int(n) for other in others for n in (await finished(other)).split()]
    assert sorted(claimed) == list(range(30))
    await store.close()


KILLED_AFTER = ("create", "update", "release", "claim", "renew", "end")


@pytest.mark.parametrize("step", KILLED_AFTER)
async def test_a_process_killed_after_any_step_loses_nothing(tmp_path: Path, step: str) -> None:
    path = tmp_path / "tasks.db"
    dead = run_code(
        path,
        f"""
        def die_after(name):
            if name == {step!r}:
                os.kill(os.getpid(), signal.SIGKILL)

        made = await store.create(TaskRecord(id="t", owner=ANN, ttl=3600.0), "w1", 30.0)
        die_after("create")
        made = await store.update(replace(made, journal=b"asked"), 1, fence=1)
        die_after("update")
        await store.release("t", 1)
        die_after("release")
        made = await store.claim("t", "w2", 30.0)
        die_after("claim")
        await store.renew({{"t": 2}}, 90.0)
        die_after("renew")
        await store.update(replace(made, status="completed", result=b"r"), made.revision, fence=2)
        die_after("end")
        """,
    )
    await finished(dead)
    assert dead.returncode == -signal.SIGKILL
    store = SqliteTaskStore(path)
    await store.start()
    found = await store.get("t", ANN)
    assert found is not None
    taken = KILLED_AFTER.index(step)
    assert (found.journal == b"asked") is (taken >= 1)
    assert found.holder == ("w1", "w1", None, "w2", "w2", None)[taken]
    assert (found.status == "completed") is (taken >= 5)
    assert found.lease_until - found.created < (60 if taken != 4 else 100)
    await store.close()


# Files that cannot be used


async def refused(path: Path) -> str:
    store = SqliteTaskStore(path)
    with pytest.raises(StoreUnavailable) as caught:
        await store.start()
    with pytest.raises(StoreUnavailable):
        await store.get("t", ANN)
    await store.close()
    assert str(path) in str(caught.value)
    return str(caught.value)


async def test_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are notes, not tasks. " * 100)
    assert "not a database" in await refused(path)
    assert path.read_text().startswith("These are notes")


async def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE orders (id INTEGER)")
    before = path.read_bytes()
    assert "another program" in await refused(path)
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteTaskStore(path)
    await store.start()
    await store.create(task("t"), "w", LEASE)
    await store.close()
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
        other.execute("PRAGMA user_version = 2")
    assert "newer mcpearl" in await refused(path)
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT id FROM tasks").fetchall() == [("t",)]


async def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert "No such file" in await refused(tmp_path / "nowhere" / "tasks.db")


async def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    full = run_code(
        path,
        """
        import json, resource
        from mcpearl.stores.errors import StoreUnavailable
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        made = 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        while made < 1000:
            record = TaskRecord(id=f"t{made}", owner=ANN, ttl=3600.0, request=b"x" * 5000)
            try:
                await store.create(record, "w", 30.0)
            except StoreUnavailable as error:
                said = str(error)
                break
            made += 1
        readable = await store.get("t0", ANN) is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        again = TaskRecord(id="after", owner=ANN, ttl=3600.0)
        await store.create(again, "w", 30.0)
        print(json.dumps([made, readable, said]))
        await store.close()
        """,
    )
    made, readable, error = json.loads(await finished(full))
    assert 0 < made < 1000 and readable
    assert str(path) in error and ("full" in error or "I/O" in error)
    store = SqliteTaskStore(path)
    await store.start()
    for number in range(made):
        assert await store.get(f"t{number}", ANN) is not None
    assert await store.get("after", ANN) is not None
    await store.close()
