"""Clients that do not read: they are paused, then dropped at a bound, and cost nobody else anything.

It is the network that does not read, so that the clients are real ones, and heal when it does.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpearl import Client, ConnectionLost
from tests.waiting import eventually

from ..transports.raw_http import message, modern
from .test_network import told_again
from .world import (
    HERE,
    LEGACY,
    MODERN,
    PATIENCE,
    Outcomes,
    World,
    free_port,
)

BOTH = pytest.mark.parametrize("protocol", [LEGACY, MODERN])
WIDE = "wide://" + "x" * 4000
MOST = 60  # megabytes a server may take meanwhile: far less than is said to those who do not read


@BOTH
async def test_a_subscriber_that_does_not_read(strict: World, protocol: str) -> None:
    server, heard = strict.server, list[str]()
    at_first = resident(server.pid)
    async with (
        strict.client(
            protocol=protocol, on_notification=lambda notice: heard.append(notice.params.uri)
        ) as client,
        server.client(strict.wire, reconnect=False) as beside,
    ):
        await client.subscribe(WIDE)
        strict.proxy.clogged = True
        rounds = 0
        while rounds < 100 or (await server.counts())["subscriptions"]:
            await beside.call_tool("touch", {"uri": WIDE, "times": 250}, timeout=PATIENCE)
            rounds += 1
            if rounds > 100:
                await asyncio.sleep(0.02)
        assert resident(server.pid) < at_first + MOST
        heard.clear()
        strict.proxy.clogged = False
        await told_again(beside, heard, WIDE)


@BOTH
async def test_progress_that_is_not_read(impatient: World, protocol: str) -> None:
    server, key, outcomes = impatient.server, impatient.mark, Outcomes()
    heard = asyncio.Event()
    at_first = resident(server.pid)
    async with (
        impatient.client(protocol=protocol) as client,
        server.client(impatient.wire, reconnect=False) as beside,
    ):
        much = {"key": key, "times": 5000, "pause": 0.0, "size": 20_000}
        call = client.call_tool("tick", much, on_progress=lambda _: heard.set())
        calling = asyncio.ensure_future(outcomes.of(key, call))
        await heard.wait()
        impatient.proxy.clogged = True
        async with asyncio.timeout(PATIENCE):
            while not {f"{key}-stopped", f"{key}-finished"} & set(server.ran()):
                await works(beside, key)
        assert resident(server.pid) < at_first + MOST
        impatient.proxy.clogged = False
        await calling
    if impatient.wire != "http":  # where whoever says more than is read is made to wait
        assert server.ran()[f"{key}-stopped"] == 1


@BOTH
@pytest.mark.parametrize("wire", ["stdio", "tcp", "tls", "unix", "ws"])  # all on one connection
async def test_answers_that_are_not_read(strict: World, protocol: str) -> None:
    server, mark, outcomes = strict.server, strict.mark, Outcomes()
    keys = [f"{mark}-{number}" for number in range(60)]
    at_first = resident(server.pid)
    async with (
        strict.client(protocol=protocol) as client,
        server.client(strict.wire, reconnect=False) as beside,
    ):
        calls = [client.call_tool("blob", {"key": key, "size": 400_000}) for key in keys]
        at_work = (await server.counts())["connections"]
        calling = asyncio.gather(*map(outcomes.of, keys, calls))
        await eventually(lambda: set(keys) <= set(server.ran()))
        strict.proxy.clogged = True
        await beside.call_tool("release")
        async with asyncio.timeout(PATIENCE):
            while (await server.counts())["connections"] >= at_work:
                await works(beside, mark)
        strict.proxy.clogged = False
        await calling
        await client.ping()
    assert resident(server.pid) < at_first + MOST
    assert outcomes.maybe


@BOTH
async def test_stdio_that_is_not_read(tmp_path: Path, protocol: str) -> None:
    port = free_port()
    command = [sys.executable, HERE / "server.py", tmp_path / "journal", f"tcp={port}", "stdio"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "MAX_OUTGOING": "4000000"},
    ) as process:
        try:
            await asyncio.to_thread(follow, process, protocol)
            async with Client(f"tcp://127.0.0.1:{port}", reconnect=False) as beside:
                with pytest.raises(ConnectionLost):  # the end of stdio is the end of the server
                    while True:
                        await works(beside, "stdio")
                        await beside.call_tool("touch", {"uri": WIDE, "times": 250})
                        assert resident(process.pid) < MOST + 100
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0
        finally:
            process.kill()


def follow(process: "subprocess.Popen[bytes]", protocol: str) -> None:
    """Subscribe by hand, and read no further than that is confirmed."""
    assert process.stdin is not None
    assert process.stdout is not None
    if protocol == LEGACY:
        about = {"capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
        begin = message("initialize", {"protocolVersion": protocol, **about}, 1)
        ready = message("notifications/initialized", id=None)
        messages = [begin, ready, message("resources/subscribe", {"uri": WIDE}, 2)]
    else:
        wanted = {"notifications": {"resourceSubscriptions": [WIDE]}}
        messages = [modern("subscriptions/listen", wanted)[1]]
    process.stdin.write(b"".join(json.dumps(each).encode() + b"\n" for each in messages))
    process.stdin.flush()
    for _ in range(2 if protocol == LEGACY else 1):
        assert b"error" not in process.stdout.readline()


async def works(client: Client, key: str) -> None:
    """See that somebody else is served meanwhile."""
    result = await client.call_tool("charge", {"key": f"{key}-beside"}, timeout=PATIENCE)
    assert not result.is_error
    await asyncio.sleep(0.02)  # or the loops here would leave others no time


def resident(pid: int) -> int:
    """How many megabytes a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024
