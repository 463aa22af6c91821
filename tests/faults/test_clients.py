"""Clients that die, fall silent, do not read or talk nonsense: the server releases what they held."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client

from .world import HERE, LEGACY, MODERN, PATIENCE, ServerProcess, address, eventually

BOTH = pytest.mark.parametrize("protocol", [LEGACY, MODERN])


async def until(server: ServerProcess, so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while not so(counts := await server.counts()):
            await asyncio.sleep(0.05)
    return counts


@BOTH
@pytest.mark.parametrize("wire", ["tcp", "unix", "http", "ws"])
async def test_killed_while_holding_a_thousand_subscriptions(
    wary_server: ServerProcess, wire: str, protocol: str
) -> None:
    await wary_server.warm_up()
    before = await wary_server.counts()
    with subprocess.Popen(
        [sys.executable, HERE / "holder.py", address(wary_server, wire), protocol, "1000"],
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"ready\n"
        holding = await wary_server.counts()
        assert holding["subscriptions"] == before["subscriptions"] + 1000
        holder.kill()
    after = await until(
        wary_server, lambda now: all(now[k] <= before[k] for k in before if k != "pid")
    )
    assert after["subscriptions"] == before["subscriptions"] == 0


async def test_killed_with_a_server_process_of_its_own(tmp_path: Path) -> None:
    command = f"{sys.executable} {HERE / 'server.py'} {tmp_path / 'journal'}"
    with subprocess.Popen(
        [sys.executable, HERE / "holder.py", command, LEGACY, "1000"], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"ready\n"
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        assert children
        holder.kill()
    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def greeted(server: ServerProcess, wire: str) -> socket.socket:
    """A legacy session by hand, on a byte stream."""
    if wire == "tcp":
        peer = socket.create_connection(("127.0.0.1", server.tcp))
    else:
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(str(server.unix))
    say(
        peer,
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": LEGACY,
                "capabilities": {},
                "clientInfo": {"name": "by hand", "version": "1"},
            },
        },
    )
    assert b"protocolVersion" in peer.recv(65536)
    say(peer, {"method": "notifications/initialized"})
    return peer


def say(peer: socket.socket, message: dict[str, Any]) -> None:
    peer.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


@pytest.mark.parametrize("wire", ["tcp", "unix"])
async def test_a_silent_client_is_asked_and_let_go(wary_server: ServerProcess, wire: str) -> None:
    await wary_server.warm_up()
    before = await wary_server.counts()
    with greeted(wary_server, wire) as peer:
        say(peer, {"id": 2, "method": "resources/subscribe", "params": {"uri": "thing://1"}})
        assert b"result" in peer.recv(65536)
        say(
            peer,
            {
                "id": 3,
                "method": "tools/call",
                "params": {"name": "charge", "arguments": {"key": "silent", "seconds": 600}},
            },
        )
        peer.settimeout(PATIENCE)
        asked = json.loads((await asyncio.to_thread(peer.recv, 65536)).splitlines()[0])
        assert asked["method"] == "ping"
        after = await until(
            wary_server, lambda now: all(now[k] <= before[k] for k in ("connections", "tasks"))
        )
    assert after["subscriptions"] == 0


@pytest.mark.parametrize("wire", ["tcp", "unix"])
async def test_a_client_that_answers_pings_stays(wary_server: ServerProcess, wire: str) -> None:
    with greeted(wary_server, wire) as peer:
        peer.settimeout(PATIENCE)
        for _ in range(4):
            asked = json.loads((await asyncio.to_thread(peer.recv, 65536)).splitlines()[0])
            assert asked["method"] == "ping"
            say(peer, {"id": asked["id"], "result": {}})
        say(peer, {"id": 9, "method": "ping"})
        assert json.loads(peer.recv(65536).splitlines()[0]) == {
            "jsonrpc": "2.0",
            "id": 9,
            "result": {},
        }


@pytest.mark.parametrize("wire", ["tcp", "unix", "http", "ws"])
async def test_garbage_from_a_client(lasting_server: ServerProcess, wire: str) -> None:
    server = lasting_server
    await server.warm_up()
    before = await server.counts()
    garbage = [b"\x00\xff\xfe" * 100 + b"\n", b"{}\n", b"[" * 5000 + b"\n", os.urandom(5000)]
    async with Client(address(server, wire), reconnect=False) as client:
        for data in garbage:
            if wire == "unix":
                peer = socket.socket(socket.AF_UNIX)
                peer.connect(str(server.unix))
            else:
                port = getattr(server, wire)
                peer = socket.create_connection(("127.0.0.1", port))
            with peer:
                peer.sendall(data)
                assert not (await client.call_tool("charge", {"key": "beside"})).is_error
    await until(server, lambda now: now["connections"] <= before["connections"])


@pytest.mark.parametrize("wire", ["tcp", "ws"])
async def test_a_frozen_client_is_let_go(wary_server: ServerProcess, wire: str) -> None:
    await wary_server.warm_up()
    before = await wary_server.counts()
    with subprocess.Popen(
        [sys.executable, HERE / "holder.py", address(wary_server, wire), LEGACY, "10"],
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"ready\n"
        os.kill(holder.pid, signal.SIGSTOP)
        await until(wary_server, lambda now: now["subscriptions"] == before["subscriptions"])
        os.kill(holder.pid, signal.SIGCONT)  # it finds its connection gone and comes back
        await until(wary_server, lambda now: now["subscriptions"] == before["subscriptions"] + 10)
        holder.kill()
