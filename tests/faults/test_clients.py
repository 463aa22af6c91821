"""Clients that die, fall silent, do not read or talk nonsense: the server releases what they held."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client

from .world import HERE, LEGACY, MODERN, PATIENCE, ServerProcess, eventually

BOTH = pytest.mark.parametrize("protocol", [LEGACY, MODERN])


def address(server: ServerProcess, wire: str) -> str:
    return {
        "tcp": f"tcp://127.0.0.1:{server.tcp}",
        "unix": f"unix://{server.unix}",
        "http": f"http://127.0.0.1:{server.http}/mcp",
        "ws": f"ws://127.0.0.1:{server.ws}/",
    }[wire]


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


class Peer:
    """A client by hand, on a byte stream."""

    def __init__(self, server: ServerProcess, wire: str) -> None:
        if wire == "tcp":
            self.socket = socket.create_connection(("127.0.0.1", server.tcp), PATIENCE)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(PATIENCE)
            self.socket.connect(str(server.unix))
        self._lines = self.socket.makefile("rb")

    def say(self, message: dict[str, Any]) -> None:
        self.socket.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def hear(self, **members: Any) -> dict[str, Any]:
        """The next message with these members; the server may ask in between whether we are there."""
        for line in self._lines:
            message: dict[str, Any] = json.loads(line)
            if members.items() <= message.items():
                return message
        raise AssertionError(f"the connection ended without {members}")


@contextmanager
def greeted(server: ServerProcess, wire: str) -> Iterator[Peer]:
    """A legacy session by hand."""
    peer = Peer(server, wire)
    with peer.socket, peer._lines:
        params = {
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "by hand", "version": "1"},
        }
        peer.say({"id": 1, "method": "initialize", "params": params})
        assert "protocolVersion" in peer.hear(id=1)["result"]
        peer.say({"method": "notifications/initialized"})
        yield peer


@pytest.mark.parametrize("wire", ["tcp", "unix"])
async def test_a_silent_client_is_asked_and_let_go(wary_server: ServerProcess, wire: str) -> None:
    await wary_server.warm_up()
    before = await wary_server.counts()
    with greeted(wary_server, wire) as peer:
        peer.say({"id": 2, "method": "resources/subscribe", "params": {"uri": "thing://1"}})
        assert "result" in peer.hear(id=2)
        peer.say(
            {
                "id": 3,
                "method": "tools/call",
                "params": {"name": "charge", "arguments": {"key": "silent", "seconds": 600}},
            },
        )
        await asyncio.to_thread(peer.hear, method="ping")
        after = await until(
            wary_server, lambda now: all(now[k] <= before[k] for k in ("connections", "tasks"))
        )
    assert after["subscriptions"] == 0


@pytest.mark.parametrize("wire", ["tcp", "unix"])
async def test_a_client_that_answers_pings_stays(wary_server: ServerProcess, wire: str) -> None:
    with greeted(wary_server, wire) as peer:
        for _ in range(4):
            asked = await asyncio.to_thread(peer.hear, method="ping")
            peer.say({"id": asked["id"], "result": {}})
        peer.say({"id": "ours", "method": "ping"})
        assert peer.hear(id="ours") == {"jsonrpc": "2.0", "id": "ours", "result": {}}


@pytest.mark.parametrize("wire", ["tcp", "unix"])
async def test_slow_readers_cost_only_themselves(server: ServerProcess, wire: str) -> None:
    await server.warm_up()
    before = await server.counts()
    params = {"name": "blob", "arguments": {"size": 200_000}}
    sizes = []
    for _ in range(6):
        with greeted(server, wire) as peer:
            peer.socket.setblocking(False)
            for number in range(200):  # of the answers nothing is read
                try:
                    peer.say({"id": number, "method": "tools/call", "params": params})
                except BlockingIOError:
                    break
            async with Client(address(server, wire), reconnect=False) as client:
                for _ in range(20):
                    result = await client.call_tool("charge", {"key": "beside"}, timeout=30)
                    assert not result.is_error
        await until(server, lambda now: now["connections"] <= before["connections"])
        sizes.append(resident(server.pid))
    assert sizes[-1] < sizes[0] + 60  # each of the six was given 80 MB it did not read


def resident(pid: int) -> int:
    """How many megabytes a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


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
