"""The client and the host without an event loop of one's own."""

import ast
import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpearl import (
    Client,
    ClientTask,
    ConnectionLost,
    Context,
    Host,
    McpearlError,
    Server,
    SyncClient,
    SyncClientTask,
    SyncHost,
    ToolError,
)
from mcpearl.client.options import ClientOptions
from mcpearl.host.options import HostOptions
from tests.waiting import wait_until
from tools import make_sync

SCRIPT = """
import asyncio, os
from mcpearl import Context, Server
app = Server("script")

@app.tool
def add(a: int, b: int) -> int:
    return a + b

@app.tool
def pid() -> int:
    return os.getpid()

@app.tool
async def sleep() -> str:
    await asyncio.sleep(600)
    return "rested"

app.run()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "server.py"
    path.write_text(SCRIPT)
    return str(path)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "mcpearl-sync"]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not threads())


def everything() -> Server:
    app = Server("everything")

    @app.tool
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    def fail() -> None:
        raise ValueError("on purpose")

    @app.tool
    async def think(ctx: Context) -> str:
        answer = await ctx.sample("?")
        return str(answer.content.text)  # type: ignore[union-attr]

    @app.tool
    async def steps(ctx: Context) -> str:
        for step in range(3):
            await ctx.progress(step, 3)
        await ctx.info("stepped")
        return "done"

    @app.tool(task=True)
    async def report() -> str:
        return "long"

    @app.resource("note://one")
    def note() -> str:
        return "text"

    @app.prompt
    def greet(name: str) -> str:
        return f"hello {name}"

    return app


def test_a_process_is_used_without_a_loop(script: str) -> None:
    with SyncClient(script) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
        assert [tool.name for tool in client.tools()] == ["add", "pid", "sleep"]
        assert client.server_info is not None
        assert client.server_info.name == "script"
        pid = client.call_tool("pid").data
        assert alive(pid)
    assert not alive(pid)


def test_everything_a_client_does() -> None:
    logs: list[Any] = []
    steps: list[float] = []
    with SyncClient(
        everything(), sampling=lambda params: "thought", on_log=lambda m: logs.append(m.data)
    ) as client:
        assert client.call_tool("think").data == "thought"
        client.call_tool("steps", on_progress=lambda p: steps.append(p.progress))
        assert steps == [0, 1, 2]
        wait_until(lambda: logs == ["stepped"])
        with pytest.raises(ToolError, match="on purpose"):
            client.call_tool("fail", raise_on_error=True)
        assert next(iter(client.resources())).uri == "note://one"
        assert client.read_resource("note://one")[0].text == "text"
        assert "hello you" in str(client.get_prompt("greet", {"name": "you"}).messages[0])
        client.ping()
        assert client.state == "ready"
        assert client.tree().state == "running"
        task = client.start_task("report")
        assert isinstance(task, SyncClientTask)
        assert task.result().data == "long"
        assert client.task(task.id).id == task.id
        assert [state.status for state in task][-1] == "completed"


def test_changes_are_a_loop() -> None:
    app = everything()
    with SyncClient(app, protocol="2026-07-28") as client:
        with client.listen(tools=True) as changes:

            @app.tool
            def late() -> str:
                return "new"

            for notice in changes:
                assert notice.method == "notifications/tools/list_changed"
                break
        assert client.call_tool("late").data == "new"


def test_a_callback_may_use_the_client() -> None:
    app = everything()
    seen: list[Any] = []
    with SyncClient(app) as client:
        client.on(
            "notifications/message",
            lambda message: seen.append(client.call_tool("add", {"a": 1, "b": 1}).data),
        )
        client.call_tool("steps")
        wait_until(lambda: seen == [2])


async def test_it_works_where_a_loop_is_running(script: str) -> None:
    with SyncClient(script) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
    await asyncio.sleep(0)


def test_several_threads_share_a_client(script: str) -> None:
    found: list[int] = []
    with SyncClient(script) as client:

        def work(number: int) -> None:
            found.append(client.call_tool("add", {"a": number, "b": 0}).data)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert sorted(found) == list(range(20))


def test_connecting_fails_as_it_does_with_a_loop() -> None:
    with pytest.raises(ConnectionLost, match="no-such-command"):
        SyncClient(["no-such-command"]).__enter__()
    client = SyncClient(everything())
    with pytest.raises(McpearlError, match="not connected"):
        client.call_tool("add")
    client.close()
    client.close()
    with client:
        assert client.call_tool("add", {"a": 1, "b": 1}).data == 2
    with client:
        assert client.call_tool("add", {"a": 1, "b": 1}).data == 2


def test_an_iterator_that_outlives_its_client() -> None:
    with SyncClient(everything()) as client:
        tools = client.tools()
        assert next(tools).name == "add"
    del tools
    gc.collect()
    assert not threads()


def test_what_is_not_closed_ends_with_its_object(script: str) -> None:
    client = SyncClient(script)
    client.connect()
    pid = client.call_tool("pid").data
    del client
    gc.collect()
    wait_until(lambda: not alive(pid))


def test_a_host_without_a_loop(script: str) -> None:
    source = {"own": everything(), "script": script, "gone": ["no-such-command"]}
    asked: list[str] = []

    def sampling(params: Any, server: str) -> str:
        asked.append(server)
        return "thought"

    with SyncHost(source, sampling=sampling) as host:
        tools = host.tools()
        assert "script__add" in [tool.name for tool in tools]
        assert set(tools.missing) == {"gone"}
        assert host.servers["gone"].state == "down"
        assert host.call_tool("script__add", {"a": 1, "b": 2}).data == 3
        assert host.call_tool("own__think").data == "thought"
        assert asked == ["own"]
        assert host["script"].call_tool("add", {"a": 1, "b": 2}).data == 3
        assert [tool.name for tool in host["script"].tools()] == ["add", "pid", "sleep"]
        pid = host.call_tool("script__pid").data
        with pytest.raises(ConnectionLost):
            host["gone"]
        changes, tree_changes = host.changes(), host.tree_changes()
        host.add("more", everything())
        for change in changes:
            if change.status.state == "ready":
                assert change.server == "more"
                break
        assert next(iter(tree_changes)).path == ("host", "more")
        assert list(host) == ["own", "script", "gone", "more"]
        host.remove("more")
        assert "more" not in host
    assert not alive(pid)


INTERRUPTED = """
import os, signal, sys, threading
from mcpearl import SyncClient

with SyncClient(sys.argv[1]) as client:
    print(client.call_tool("pid").data, flush=True)
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        client.call_tool("sleep")
    except KeyboardInterrupt:
        print("interrupted", client.call_tool("add", {"a": 1, "b": 2}).data, flush=True)
    %s
"""


@pytest.mark.parametrize(
    "end", ["", "os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(4)"]
)
def test_ctrl_c_ends_the_call_and_nothing_is_left(script: str, end: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED % end)
    done = subprocess.run(
        [sys.executable, str(program), script], capture_output=True, text=True, timeout=60
    )
    pid, said = done.stdout.splitlines()
    assert said == "interrupted 3", done.stderr
    expected = {"": 0, "os._exit(3)": 3, "sys.exit(4)": 4}.get(end, -signal.SIGKILL)
    assert done.returncode == expected, done.stderr
    wait_until(lambda: not alive(int(pid)))


def test_a_program_that_forgets_to_close(script: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import sys
            from mcpearl import SyncClient
            client = SyncClient(sys.argv[1])
            client.connect()
            print(client.call_tool("pid").data)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(program), script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    wait_until(lambda: not alive(int(done.stdout)))


# The faces are whole


@pytest.mark.parametrize(
    ("face", "inner"), [(SyncClient, Client), (SyncHost, Host), (SyncClientTask, ClientTask)]
)
def test_every_public_method_is_there(face: type, inner: type) -> None:
    public = {name for name in dir(inner) if not name.startswith("_")}
    assert public <= set(dir(face))
    for name in public - {"connect", "close"}:
        method, own = getattr(inner, name), getattr(face, name)
        if inspect.isfunction(method):
            assert (
                inspect.signature(own).parameters.keys()
                == inspect.signature(method).parameters.keys()
            )
            assert not inspect.iscoroutinefunction(own)


def test_the_options_are_those_of_the_classes() -> None:
    client = set(inspect.signature(Client).parameters) - {"target"}
    assert client == set(ClientOptions.__annotations__)
    host = set(inspect.signature(Host).parameters) - {"source", "options"}
    assert host <= set(HostOptions.__annotations__)


@pytest.mark.parametrize("made", make_sync.MODULES, ids=lambda made: made.module)
def test_what_is_written_is_up_to_date(made: make_sync.Made) -> None:
    """Run `make sync` if this fails."""

    def classes(text: str) -> list[str]:
        return [ast.dump(node) for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]

    there = (make_sync.SOURCE / "sync" / f"{made.module}.py").read_text()
    assert classes(there) == classes(make_sync.write(made))
