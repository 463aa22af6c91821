"""Everything of ours that lives long is in the tree, and a tree is whole with all of it at once."""

import asyncio
from contextlib import suppress
from pathlib import Path

from mcpearl import (
    Client,
    ConnectionLost,
    Http,
    Isolate,
    McpError,
    Receipts,
    Server,
    Tcp,
    Telemetry,
    Unix,
    WebSocket,
)
from mcpearl.runtime.keeper import Keeper
from tests.ports import free_port
from tests.redis_server import fresh_address
from tests.transports.raw_http import serving
from tests.waiting import eventually


async def test_everything_that_lives_long_is_in_the_tree(tmp_path: Path) -> None:
    app = Server(
        "everything",
        store=fresh_address(),
        telemetry=Telemetry(),
        receipts=Receipts(tmp_path / "receipts"),
        blocked_after=5.0,
        grace=0,
    )

    @app.background
    async def refresh() -> None:
        await asyncio.Event().wait()

    @app.tool(isolate=Isolate(processes=1))
    def isolated() -> int:
        return 1

    @app.tool(task=True)
    async def task() -> int:
        return 1

    inner = Server("inner")
    http, tcp, ws = free_port(), free_port(), free_port()
    unix = tmp_path / "s"
    wires = Http(port=http, http_sse=True), Tcp(port=tcp), WebSocket(port=ws), Unix(path=str(unix))
    async with serving(inner) as raw:
        app.mount("far", f"http://127.0.0.1:{raw.port}/mcp")
        task_of_server = asyncio.create_task(app.serve(*wires))
        try:
            expected = {
                "bus",
                *("store", "members", "names"),
                "background/refresh",
                "isolation/zygote",
                "isolation/pool of `isolated`",
                f"wires/http 127.0.0.1:{http}/the sessions of an endpoint",
                f"wires/http 127.0.0.1:{http}/the HTTP+SSE sessions of an endpoint",
                f"wires/http 127.0.0.1:{http}/streams that were read whole",
                f"wires/http 127.0.0.1:{http}/the clients of a wire",
                f"wires/tcp 127.0.0.1:{tcp}/the clients of a wire",
                f"wires/websocket 127.0.0.1:{ws}/the clients of a wire",
                f"wires/unix {unix}/the clients of a wire",
                "leases of tasks",
                "upstreams/far",
                "receipts",
                "exporter",
                "watchdog of the event loop",
            }

            def missing() -> set[str]:
                states = {"/".join(path): node.state for path, node in app.tree().walk()}
                return {name for name in expected if states.get(name) != "running"}

            await eventually(
                lambda: task_of_server.done() or not missing(),
                otherwise=lambda: (missing(), str(app.tree())),
            )
            assert not missing(), app.tree()
        finally:
            task_of_server.cancel()
            await asyncio.wait([task_of_server])
    assert {node.state for _, node in app.tree().walk()} == {"ended"}


async def test_the_connection_of_a_client_is_in_the_tree_of_its_server() -> None:
    inner, app = Server("inner"), Server("outer")
    async with serving(inner) as raw:
        app.mount("far", f"http://127.0.0.1:{raw.port}/mcp")
        async with Client(app):

            def connected() -> bool:
                node = app.tree().find("upstreams", "far")
                return node is not None and node.state == "running" and bool(node.children)

            await eventually(connected)
            app.unmount("far")
            assert app.tree().find("upstreams") is None


async def test_a_mounted_server_that_comes_back_is_connected_again() -> None:
    inner, app = Server("inner", grace=0), Server("outer")
    wire = Tcp(port=free_port())

    @inner.tool
    async def add(a: int, b: int) -> int:
        return a + b

    app.mount("far", f"tcp://127.0.0.1:{wire.port}")

    async def works() -> bool:
        with suppress(McpError, ConnectionLost):
            return (await client.call_tool("far__add", {"a": 1, "b": 2})).text == "3"
        return False

    async def is_listed() -> bool:  # its lists are read after it is connected
        return [each.name for each in await client.tools()] == ["far__add"]

    def state() -> str:
        node = app.tree().find("upstreams", "far")
        assert node is not None
        return node.state

    async with Client(app, validate_output=False) as client:
        async with inner.serving(wire):
            await eventually(works)
            assert state() == "running"
            await eventually(is_listed)
        await eventually(lambda: state() != "running")
        assert await client.tools() == []
        async with inner.serving(wire):
            await eventually(works)
            assert state() == "running"
            await eventually(is_listed)


async def test_parts_that_recover_by_themselves_can_be_ended(tmp_path: Path) -> None:
    """As the console does it, which restarts parts."""
    app, inner = Server("outer", receipts=Receipts(tmp_path, on_full="continue")), Server("inner")

    @inner.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool(task=True)
    async def task() -> int:
        return 1

    paths = (
        ("watchdog of the event loop",),
        ("leases of tasks",),
        ("receipts",),
        ("upstreams", "far"),
        ("upstreams", "far", "lists"),
    )
    async with serving(inner) as raw:
        app.mount("far", f"http://127.0.0.1:{raw.port}/mcp")
        async with Client(app) as client:
            assert (await client.call_tool("task")).data == 1  # leases are kept from now on

            def restarted(path: tuple[str, ...]) -> bool:
                node = app.tree().find(*path)
                return node is not None and node.state == "running" and node.restarts == 1

            async def is_listed() -> bool:
                return [each.name for each in await client.tools()] == ["task", "far__add"]

            def runs(path: tuple[str, ...]) -> bool:
                node = app.tree().find(*path)
                return node is not None and node.state == "running"

            for path in paths:
                await eventually(lambda path=path: runs(path))  # type: ignore[misc]
                assert app.parts.kill(*path)
                await eventually(lambda path=path: restarted(path), otherwise=lambda: app.tree())  # type: ignore[misc]
            assert not app.parts.kill("upstreams", "unknown")
            assert not app.parts.kill("unknown")
            await eventually(is_listed)
            assert (await client.call_tool("far__add", {"a": 1, "b": 2})).data == 3
            assert (await client.call_tool("task")).data == 1


async def test_a_keeper_shows_looks_that_failed() -> None:
    def look() -> float | None:
        raise RuntimeError("a bad entry")

    keeper = Keeper("sessions", look)
    keeper.wake(0)
    await eventually(lambda: keeper.failures)
    keeper.stop()
    assert str(keeper.node()) == "sessions: running, restarted 1 times (RuntimeError: a bad entry)"
