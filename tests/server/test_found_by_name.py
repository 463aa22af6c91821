"""Sessions, tasks, upstreams and workers are found through `app.names`, which keeps none of them."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpearl import Client, Context, Server
from tests.ports import free_port
from tests.server.tasks.apps import WITH, task_of
from tests.server.wire import LEGACY, MODERN, wire
from tests.transports.raw_http import serving
from tests.waiting import eventually


def watched(app: Server, kind: str) -> list[tuple[Any, bool]]:
    """Return a list that gets each name of a kind, and whether it began."""
    heard: list[tuple[Any, bool]] = []
    app.names.watch(kind, lambda name, owner: heard.append((name, owner is not None)))
    return heard


async def test_a_session() -> None:
    app = Server("sessions")
    heard = watched(app, "session")
    async with serving(app) as raw:
        session = await raw.initialize()
        await eventually(lambda: app.names.count("session") == 1)
        name = "session", session.id
        found = app.names.lookup(name)
        assert found is app.sessions[0]
        assert found.id == session.id
        assert list(app.names.where("session")) == [found]
        assert name in app.names
        assert await app.names.machine_of(name) == socket.gethostname()
        with pytest.raises(ValueError, match="it is the name of a session"):
            app.names.hold(name, found)
        await session.delete()
        assert app.names.lookup(name) is None
        assert app.names.count("session") == 0
        assert await app.names.machine_of(name) is None
    assert heard == [(name, True), (name, False)]


async def test_a_session_of_the_older_transport() -> None:
    app = Server("sessions")
    async with serving(app, http_sse=True) as raw, Client(f"http://127.0.0.1:{raw.port}/sse"):
        await eventually(lambda: app.sessions)
        (session,) = app.sessions
        assert app.names.lookup(("session", session.id)) is session


async def test_a_session_without_an_id_is_found_by_its_kind() -> None:
    app = Server("sessions")
    async with wire(app, LEGACY):
        await eventually(lambda: app.sessions)
        assert list(app.names.where("session")) == list(app.sessions)
        assert app.names.count("session") == 1
    await eventually(lambda: app.names.count("session") == 0)


async def test_a_task() -> None:
    app = Server("tasks", grace=0)
    gate = asyncio.Event()
    heard = watched(app, "task")

    @app.tool(task=True)
    async def work(ctx: Context) -> str:
        await gate.wait()
        return "done"

    async with wire(app, MODERN, WITH) as client:
        name = "task", task_of(await client.call("work"))["taskId"]
        assert app.names.lookup(name).record.id == name[1]
        assert list(app.names.where("task")) == [app.names.lookup(name)]
        assert await app.names.machine_of(name) == socket.gethostname()
        gate.set()
        await eventually(lambda: app.names.lookup(name) is None)
    assert heard == [(name, True), (name, False)]


async def test_an_upstream() -> None:
    inner, app = Server("inner"), Server("outer")
    heard = watched(app, "upstream")
    async with serving(inner) as raw:
        app.mount("near", Server("here"))
        app.mount("far", f"http://127.0.0.1:{raw.port}/mcp")
        async with Client(app):
            found = app.names.lookup(("upstream", "far"))
            assert found.status.name == "far"
            assert list(app.names.where("upstream")) == [found]
            assert app.names.lookup(("upstream", "near")) is None
            app.unmount("far")
            assert app.names.lookup(("upstream", "far")) is None
    assert heard == [(("upstream", "far"), True), (("upstream", "far"), False)]


WORKERS = """
import sys
from mcpearl import Server

app = Server("crew")

@app.tool
def worker(number: int) -> int | None:
    found = app.names.lookup(("worker", number))
    return None if found is None else found.pid

@app.tool
def workers() -> list[int | None]:
    return sorted(each.pid for each in app.names.where("worker"))

def tell(name, owner):
    here = app.names.lookup(name)
    print(*name, "begins" if owner is not None and owner is here else "ends", flush=True)

app.names.watch("worker", tell)
app.run("http", port=int(sys.argv[1]), workers=2)
"""


async def test_a_worker(tmp_path: Path) -> None:
    script, port = tmp_path / "crew.py", free_port()
    script.write_text(WORKERS)
    process = subprocess.Popen([sys.executable, script, str(port)], stdout=subprocess.PIPE)
    parent = psutil.Process(process.pid)
    try:

        async def up() -> list[int]:
            try:
                async with Client(f"http://127.0.0.1:{port}/mcp", connect_timeout=2.0) as client:
                    found = (await client.call_tool("workers")).data
                    assert (await client.call_tool("worker", {"number": 7})).data is None
                    first = (await client.call_tool("worker", {"number": 0})).data
            except Exception:
                return []
            return [first, *(pid for pid in found if pid != first)] if len(found) == 2 else []

        first, second = await eventually(up)
        assert {first, second} == {each.pid for each in parent.children()}
        os.kill(first, signal.SIGKILL)

        async def replaced() -> bool:
            found = await up()
            return bool(found) and found[0] != first and found[1] == second

        await eventually(replaced)
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=30)
    lines = ["worker 0 begins", "worker 1 begins", "worker 0 ends", "worker 0 begins"]
    assert said.decode().splitlines()[:4] == lines
