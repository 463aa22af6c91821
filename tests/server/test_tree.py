"""The tree of a server, functions in the background, and wires that are opened again."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, ConnectionLost, Http, Server, Tcp, Unix
from mcpearl.runtime.supervisor_errors import GaveUp
from mcpearl.server.server import Server as ServerType
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
from tests.waiting import eventually


def server(**options: Any) -> Server:
    app = Server("trees", **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


def state_of(app: Server, *path: str) -> str | None:
    node = app.tree().find(*path)
    return None if node is None else node.state


async def test_the_tree_stands_while_the_server_runs() -> None:
    app = server()
    assert app.tree().state == "ended"
    async with Client(app):
        tree = app.tree()
        assert (tree.name, tree.state) == ("trees", "running")
        assert tree.children[0].name == "bus"
        assert {child.state for child in tree.children} == {"running"}
    assert app.tree().state == "ended"


async def test_a_function_in_the_background_runs_inside_the_lifespan() -> None:
    trace: list[str] = []

    @asynccontextmanager
    async def lifespan(app: ServerType) -> AsyncIterator[str]:
        yield "database"
        trace.append("lifespan left")

    app = server(lifespan=lifespan)

    @app.background
    async def refresh() -> None:
        trace.append(f"with {app.lifespan_value}")
        try:
            await asyncio.Event().wait()
        finally:
            trace.append("cancelled")

    for _ in range(2):
        async with Client(app):
            await eventually(lambda: trace)
            assert state_of(app, "background", "refresh") == "running"
        assert trace == ["with database", "cancelled", "lifespan left"]
        trace.clear()


async def test_a_function_in_the_background_is_restarted() -> None:
    app = server()
    runs = 0

    @app.background(name="flaky", restart="transient")
    async def refresh() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("no prices")

    changes = app.tree_changes()
    async with Client(app):
        await eventually(lambda: state_of(app, "background", "flaky") == "ended")
    changes.close()
    told = [
        (each.state, each.error)
        async for each in changes
        if each.path[-2:] == ("background", "flaky")
    ]
    assert told[:3] == [("starting", None), ("running", None), ("waiting", "ValueError: no prices")]
    assert runs == 2


async def test_a_function_that_keeps_failing_ends_the_server(
    tmp_path: Path, clock: MovableClock
) -> None:
    app = server()

    @app.background
    async def broken() -> None:
        await asyncio.sleep(0)
        raise ValueError("no prices")

    serve = asyncio.ensure_future(app.serve(Unix(path=tmp_path / "s")))
    await eventually(lambda: state_of(app, "wires") == "running")
    await clock.advance(60)
    with pytest.raises(GaveUp, match=r"`background` gave up after 11 failures .*no prices"):
        await serve
    assert not (tmp_path / "s").exists()


async def test_functions_are_registered_before_the_server_runs() -> None:
    app = server()

    async def refresh() -> None: ...

    app.background(refresh)
    with pytest.raises(ValueError, match="in the background named 'refresh' already"):
        app.background(refresh)
    async with Client(app):
        with pytest.raises(RuntimeError, match="before the server runs"):
            app.background(name="late")(refresh)


@asynccontextmanager
async def serving(app: Server, *wires: Any) -> AsyncIterator[None]:
    task = asyncio.ensure_future(app.serve(*wires))
    await eventually(lambda: task.done() or state_of(app, "wires") == "running")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_wire_that_fails_is_opened_again(tmp_path: Path) -> None:
    app = server()
    port = free_port()
    path = tmp_path / "s"
    name = f"tcp 127.0.0.1:{port}"
    async with serving(app, Tcp(port=port), Unix(path=path)):
        async with Client(f"tcp://127.0.0.1:{port}") as tcp, Client(f"unix://{path}") as unix:
            assert app.parts.root.kill("wires", name)
            await eventually(lambda: app.tree().find("wires", name).restarts == 1)  # type: ignore[union-attr]
            result = await tcp.call_tool("add", {"a": 1, "b": 2})
            assert result.structured_content == {"result": 3}
            result = await unix.call_tool("add", {"a": 1, "b": 2})
            assert result.structured_content == {"result": 3}
        node = app.tree().find("wires", f"unix {path}")
        assert node is not None and (node.state, node.restarts) == ("running", 0)


async def test_an_http_wire_that_fails_loses_its_sessions() -> None:
    app = server()
    port = free_port()
    phases: list[str] = []
    url = f"http://127.0.0.1:{port}/mcp"
    async with (
        serving(app, Http(port=port)),
        Client(url, protocol="2025-11-25", on_state=phases.append) as client,
    ):
        assert app.parts.root.kill("wires", f"http 127.0.0.1:{port}")
        await eventually(lambda: app.tree().find("wires").children[0].restarts == 1)  # type: ignore[union-attr]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 3}
        assert phases.count("initializing") >= 2, "there was a new session"


async def test_all_wires_together_are_opened_again(tmp_path: Path) -> None:
    app = server()
    port = free_port()
    path = tmp_path / "s"
    async with (
        serving(app, Tcp(port=port), Unix(path=path)),
        Client(f"tcp://127.0.0.1:{port}") as tcp,
        Client(f"unix://{path}") as unix,
    ):
        assert app.parts.root.kill("wires")
        await eventually(lambda: app.tree().find("wires").restarts == 1)  # type: ignore[union-attr]
        for client in (tcp, unix):
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert result.structured_content == {"result": 3}


async def test_a_standard_input_that_fails_ends_the_server() -> None:
    source = (
        "from mcpearl import Server\n"
        "app = Server('one')\n"
        "@app.tool\n"
        "async def fail() -> bool:\n"
        "    return app.parts.root.kill('wires', 'stdio')\n"
        "app.run()\n"
    )
    command = [sys.executable, "-c", source]
    async with Client(command, reconnect=False, inherit_env=True) as client:
        with suppress(ConnectionLost):  # the answer may be faster
            await client.call_tool("fail")
        with pytest.raises(ConnectionLost, match="exited with code 1"):
            await client.given_up()


async def test_a_port_that_stays_taken_ends_the_server_with_the_story(
    clock: MovableClock,
) -> None:
    app = server()
    port = free_port()
    name = f"tcp 127.0.0.1:{port}"
    serve = asyncio.ensure_future(app.serve(Tcp(port=port)))
    await eventually(lambda: state_of(app, "wires") == "running")
    # Between the end of the wire and its restart, another process takes the port.
    taken: list[socket.socket] = []

    def take(change: Any) -> None:
        if change.path[-1] == name and change.state == "waiting" and not taken:
            taken.append(socket.create_server(("127.0.0.1", port)))

    app.parts.root.follow(take)
    assert app.parts.root.kill("wires", name)
    await eventually(lambda: taken)
    await clock.advance(60)
    with pytest.raises(GaveUp, match=rf"`wires` gave up .*{port}"):
        await serve
    taken[0].close()


async def test_the_error_of_a_wire_that_does_not_start_is_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        serve = server().serve(Tcp(port=port))
        with pytest.raises(OSError, match=f"{port}"):
            await serve


async def test_a_bus_that_failed_is_joined_again_and_everything_is_announced() -> None:
    app = server()
    updated: list[str] = []
    app.core.subscriptions.all_changed = lambda: updated.append("all")  # type: ignore[method-assign]
    async with Client(app):
        assert app.parts.root.kill("bus")
        await eventually(lambda: updated == ["all"])
        assert app.tree().children[0].restarts == 1


async def test_a_name_goes_with_the_connection_that_holds_it() -> None:
    app = server()
    async with Client(app):
        (connection,) = app.connections
        app.names.hold("alice", connection)
        app.names.mark(connection, "editor")
        assert app.names.lookup("alice") is connection
        assert list(app.names.where("editor")) == [connection]
    assert app.names.lookup("alice") is None
    assert app.names.count("editor") == 0
