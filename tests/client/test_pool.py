"""A pool of clients: borrowing, bounded waiting, and members that are replaced."""

import asyncio
from pathlib import Path

import pytest

from mcpearl import Client, LimitReached, Pool, Reconnect, Server
from mcpearl.protocol.errors import ConnectionLost, McpearlError
from tests.waiting import eventually

SERVER = """
import os
from mcpearl import Server

app = Server("numbered")

@app.tool
async def pid() -> int:
    return os.getpid()

@app.tool
async def die() -> int:
    os._exit(3)

app.run()
"""


def waiting_server(release: asyncio.Event) -> Server:
    app = Server("pooled")

    @app.tool
    async def wait() -> str:
        await release.wait()
        return "done"

    return app


async def test_calls_run_on_as_many_clients_as_there_are() -> None:
    release = asyncio.Event()
    app = waiting_server(release)
    async with Pool(app, size=3, queue=2) as pool:
        assert [node.state for node in pool.tree().children] == ["running"] * 3
        calls = [asyncio.ensure_future(pool.call_tool("wait")) for _ in range(5)]
        await eventually(lambda: app.core.counters()["calls_in_flight"] == 3)
        with pytest.raises(LimitReached, match="all 3 clients are busy and 2 tasks wait already"):
            await pool.call_tool("wait")
        release.set()
        for result in await asyncio.gather(*calls):
            assert result.structured_content == {"result": "done"}
    with pytest.raises(McpearlError, match="the pool is not connected"):
        await pool.call_tool("wait")


async def test_waiting_for_a_client_ends_and_loses_none() -> None:
    app = waiting_server(asyncio.Event())
    async with Pool(app, size=1, wait=0.05) as pool, pool.client():
        with pytest.raises(LimitReached, match=r"no client of the pool was free within 0\.05 s"):
            await pool.call_tool("wait")
    async with Pool(app, size=1, wait=None) as pool:
        for _ in range(20):
            async with pool.client():
                waits = [asyncio.ensure_future(pool._take()) for _ in range(3)]
                await asyncio.sleep(0)
            waits[0].cancel()  # the client was just handed to it
            taken, _ = await asyncio.wait(waits[1:], return_when=asyncio.FIRST_COMPLETED)
            for task in waits:
                task.cancel()
            for task in taken:
                pool._offer(task.result())
            await asyncio.wait(waits)
            assert (len(pool._idle), len(pool._waiting)) == (1, 0)


async def test_closing_fails_those_who_wait() -> None:
    pool = Pool(waiting_server(asyncio.Event()), size=1)
    await pool.connect()
    async with pool.client():
        waiting = asyncio.ensure_future(pool.call_tool("wait"))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(ConnectionLost, match="the pool was closed"):
            await waiting


async def test_a_client_that_gave_up_is_replaced(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)

    def make(target: object) -> Client:
        return Client(str(target), reconnect=False)

    async with Pool(str(script), size=2, make=make) as pool:
        before = {(await pool.call_tool("pid")).structured_content["result"] for _ in range(4)}  # type: ignore[index]
        assert len(before) == 2, "members take turns"
        with pytest.raises(ConnectionLost):
            await pool.call_tool("die")
        await eventually(lambda: sum(node.restarts for node in pool.tree().children) == 1)
        await eventually(lambda: all(node.state == "running" for node in pool.tree().children))
        after = {(await pool.call_tool("pid")).structured_content["result"] for _ in range(4)}  # type: ignore[index]
        assert len(after) == 2
        assert len(after & before) == 1


async def test_a_target_that_is_not_there_is_the_error() -> None:
    with pytest.raises(ConnectionLost, match="cannot connect"):
        await Pool("tcp://127.0.0.1:1", size=2).connect()


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 client"):
        Pool("http://127.0.0.1/", size=0)


async def test_the_tree_of_a_client_shows_its_connection(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    client = Client(str(script), reconnect=Reconnect(delays=(0.0,), max_attempts=2))
    changes = client.tree_changes()
    assert client.tree().state == "ended"
    async with client:
        assert (client.tree().state, client.tree().restarts) == ("running", 0)
        with pytest.raises(ConnectionLost):
            await client.call_tool("die")
        await eventually(lambda: client.tree().restarts == 1)
        await eventually(lambda: client.tree().state == "running")
        assert "exited with code 3" in (client.tree().last_error or "")
        script.unlink()
        with pytest.raises(ConnectionLost):
            await client.call_tool("die")
        await eventually(lambda: client.tree().state == "failed")
        with pytest.raises(ConnectionLost, match="gave up after 2 attempts"):
            await client.given_up()
    assert client.tree().state == "ended"
    changes.close()
    states = [change.state async for change in changes]
    assert states[:3] == ["starting", "starting", "running"]
    assert states.count("running") == 2
    assert "waiting" in states
