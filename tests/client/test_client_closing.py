"""What is left when a client has closed: nothing."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest

from mcpearl import Client, ConnectionLost, Context, McpearlError, Server
from mcpearl.protocol.lifecycle import Phase
from tests.waiting import eventually

from .peers import client_of, modern_peer

BOTH = pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])


def an_app() -> Server:
    app = Server("closing")

    @app.tool
    async def wait(ctx: Context) -> str:
        await ctx.info("waiting")
        await ctx.progress(1)
        await asyncio.Event().wait()
        return "never"

    @app.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("?")).content.text

    @app.resource("x://")
    async def x() -> str:
        return "x"

    return app


@BOTH
async def test_closing_leaves_no_task_and_no_thread(protocol: str) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    app = an_app()

    reached: set[str] = set()

    async def log_slowly(params: Any) -> None:
        reached.add("log")
        await asyncio.Event().wait()

    async def progress_slowly(params: Any) -> None:
        reached.add("progress")
        await asyncio.Event().wait()

    async with Client(
        app,
        protocol=protocol,
        sampling=lambda _: "in a thread",
        on_log=log_slowly,
        on_progress=progress_slowly,
        log_level="debug",
    ) as client:
        assert (await client.call_tool("ask")).content[0].text == "in a thread"
        await client.subscribe("x://")
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await eventually(lambda: reached == {"log", "progress"})
    with pytest.raises(ConnectionLost):
        await calling
    await eventually(lambda: asyncio.all_tasks() == tasks)
    await eventually(lambda: not set(threading.enumerate()) - threads)
    assert not app.core.roster
    assert app.core.subscriptions.counts()["uris"] == 0


async def test_calls_waiting_when_the_client_closes_fail_at_once() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    client = await client_of(peer)
    await client.connect()
    calling = asyncio.ensure_future(client.call_tool("t"))
    await eventually(lambda: peer.asked("tools/call"))
    await client.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await asyncio.wait_for(calling, 30)


async def test_the_connection_of_a_closed_client_is_garbage_collected() -> None:
    async with Client(an_app()) as client:
        await client.list_tools()
        connection = weakref.ref(client._link.connection)
    gc.collect()
    assert connection() is None


async def test_closing_from_two_places_and_inside_a_callback() -> None:
    app = an_app()
    client: Client

    async def close(params: Any) -> None:
        await client.close()

    client = Client(app, on_log=close, log_level="debug")
    await client.connect()
    with pytest.raises(McpearlError):
        await client.call_tool("wait")
    await eventually(lambda: not app.core.roster)
    await asyncio.gather(client.close(), client.close())
    await eventually(lambda: client.state is Phase.CLOSED)  # by the one in the callback
    with pytest.raises(McpearlError, match="not connected"):
        await client.ping()


async def test_many_clients_in_turn_leave_nothing_behind() -> None:
    app = an_app()

    async def come_and_go(times: int) -> int:
        for _ in range(times):
            async with Client(app) as client:
                await client.list_tools()
        await eventually(no_more_exports)
        gc.collect()
        return len(gc.get_objects())

    before = await come_and_go(20)
    assert await come_and_go(200) - before < 2000  # ten for each would be a leak


def no_more_exports() -> bool:
    """Whether the threads have ended that export what is left of the telemetry of a process."""
    return not any(thread.name == "mcpearl-export" for thread in threading.enumerate())


async def test_connecting_cancelled_and_tried_again() -> None:
    app = an_app()
    client = Client(app)
    for turns in range(5):
        connecting = asyncio.ensure_future(client.connect())
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        try:
            await connecting
        except asyncio.CancelledError:
            assert not app.core.roster
        else:
            await client.close()
    async with client:
        assert (await client.list_tools()).tools


async def test_a_closed_client_still_knows_its_server() -> None:
    client = Client(an_app())
    with pytest.raises(McpearlError, match="not connected"):
        _ = client.server_info
    async with client:
        known = client.server_info, client.server_capabilities, client.instructions
        version = client.protocol_version, client.era
    assert (client.server_info, client.server_capabilities, client.instructions) == known
    assert (client.protocol_version, client.era) == version
    with pytest.raises(McpearlError, match="not connected"):
        await client.call_tool("ask")


async def test_clients_that_export_leave_nothing_behind_either() -> None:
    async def come_and_go(times: int) -> int:
        for _ in range(times):
            async with Client(Server("exporting", telemetry=True), telemetry=True) as client:
                await client.ping()
        await eventually(no_more_exports)
        gc.collect()
        return len(gc.get_objects())

    before = await come_and_go(5)
    assert await come_and_go(50) - before < 500
