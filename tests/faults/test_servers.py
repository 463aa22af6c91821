"""Servers that are killed or frozen in the middle of a call."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from mcpearl import Client, ConnectionLost, Keepalive, Phase
from mcpearl.types.tool_calls import CallToolResult
from tests.waiting import eventually, turns

from .test_network import told_again
from .world import HERE, LEGACY, MODERN, PATIENCE, QUICK, Outcomes, World, held

BOTH = pytest.mark.parametrize("protocol", [LEGACY, MODERN])


@BOTH
async def test_killed_in_the_middle_of_calls_and_restarted(fragile: World, protocol: str) -> None:
    server, mark = fragile.server, fragile.mark
    heard: list[str] = []
    async with fragile.client(
        protocol=protocol, on_notification=lambda notice: heard.append(notice.params.uri)
    ) as client:
        await client.list_tools()
        await client.subscribe("thing://1")
        once = asyncio.ensure_future(
            client.call_tool("charge", {"key": f"{mark}once", "seconds": 20})
        )
        again = asyncio.ensure_future(
            client.call_tool("put", {"key": f"{mark}again", "seconds": 1})
        )
        await eventually(lambda: len(server.ran()) == 2)
        server.kill()
        with pytest.raises(ConnectionLost) as caught:
            await once
        assert caught.value.maybe_executed
        assert not again.done()
        server.start()
        assert (await again).content[0].text == f"{mark}again"  # type: ignore[union-attr]
        await told_again(client, heard, "thing://1")
    assert server.ran() == {f"{mark}once": 1, f"{mark}again": 2}


@BOTH
async def test_frozen_and_continued(fragile: World, protocol: str) -> None:
    server, outcomes = fragile.server, Outcomes()
    async with fragile.client(protocol=protocol) as client:
        await client.list_tools()
        server.freeze()
        keys = [f"{fragile.mark}{n}" for n in range(20)]
        work = asyncio.gather(
            *(outcomes.of(key, client.call_tool("charge", {"key": key})) for key in keys)
        )
        await turns()  # in which the calls leave
        assert not len(outcomes)
        server.thaw()
        await work
        assert client.state is Phase.READY
    assert sorted(outcomes.done) == sorted(keys)
    outcomes.check(server.ran(), once=True)


@pytest.mark.parametrize("wire", ["tcp", "tls", "unix", "stdio", "ws"])
async def test_frozen_for_so_long_that_it_is_given_up(fragile: World) -> None:
    keepalive = Keepalive(interval=0.15, patience=1.0)
    async with fragile.client(protocol=LEGACY, keepalive=keepalive, connect_timeout=3.0) as client:
        fragile.server.freeze()
        await eventually(lambda: client.state is not Phase.READY)
        fragile.server.thaw()
        assert (await client.read_resource("thing://7")).contents


# A server process of the client's own


def a_process(journal: Path) -> list[str]:
    return [sys.executable, str(HERE / "server.py"), str(journal)]


async def pid_of(client: Client) -> int:
    result: CallToolResult = await client.call_tool("counts")
    assert isinstance(result.structured_content, dict)
    return int(result.structured_content["pid"])


@BOTH
async def test_a_process_that_is_killed_is_started_again(tmp_path: Path, protocol: str) -> None:
    before = held()
    journal = tmp_path / "journal"
    async with Client(a_process(journal), protocol=protocol, reconnect=QUICK) as client:
        pids = [await pid_of(client)]
        for turn in range(3):
            calling = asyncio.ensure_future(client.call_tool("charge", {"key": "k", "seconds": 20}))
            await eventually(lambda turn=turn: len(journal.read_text().split()) > turn)
            os.kill(pids[-1], signal.SIGKILL)
            with pytest.raises(ConnectionLost) as caught:
                await calling
            assert caught.value.maybe_executed
            assert caught.value.exit_code == -signal.SIGKILL
            pids.append(await pid_of(client))
        assert len(set(pids)) == 4
    await eventually(lambda: not held() - before, PATIENCE, lambda: held() - before)


async def test_a_process_that_is_frozen_is_replaced(tmp_path: Path) -> None:
    before = held()
    keepalive = Keepalive(interval=0.15, patience=1.0)
    async with Client(
        a_process(tmp_path / "journal"), protocol=LEGACY, reconnect=QUICK, keepalive=keepalive
    ) as client:
        frozen = await pid_of(client)
        os.kill(frozen, signal.SIGSTOP)
        await eventually(lambda: client.state is not Phase.READY)
        assert await pid_of(client) != frozen
        await eventually(lambda: not Path(f"/proc/{frozen}").exists())
    await eventually(lambda: not held() - before, PATIENCE, lambda: held() - before)
