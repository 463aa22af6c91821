"""Clients that die, fall silent or talk nonsense: the server releases what they held."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import ConnectionLost
from tests.waiting import eventually

from ..transports.raw_http import modern
from .world import (
    HERE,
    LEGACY,
    MODERN,
    PATIENCE,
    ServerProcess,
    address,
    counts_at,
    free_port,
)

BOTH = pytest.mark.parametrize("protocol", [LEGACY, MODERN])
GARBAGE = [b"\x00\xff\xfe" * 100 + b"\n", b"{}\n", b"[" * 5000 + b"\n", os.urandom(5000)]


async def until(server: ServerProcess, so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until the server's counts are as they should be, and return them."""

    async def counts() -> dict[str, Any] | None:
        found = await server.counts()
        return found if so(found) else None

    return await eventually(counts, PATIENCE)


class Holder:
    """A client in a process of its own, that follows resources and can be killed and frozen."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    async def says(self, what: str) -> None:
        """Read until it says something."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = b"before"
            while line and line.decode().strip() != what:
                line = await asyncio.to_thread(self.process.stdout.readline)
            assert line, "it ended"

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def children(self) -> list[int]:
        """The processes it has started and that run."""
        pid = self.process.pid
        found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [child for child in found if runs(child)]


def runs(pid: int) -> bool:
    """Whether a process is there, and not only its parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@asynccontextmanager
async def holding(target: str, protocol: str, count: int, *more: str) -> AsyncIterator[Holder]:
    """A client that follows as many resources."""
    command = [sys.executable, str(HERE / "holder.py"), target, protocol, str(count), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        holder = Holder(process)
        try:
            await holder.says("ready")
            yield holder
        finally:
            process.kill()


@asynccontextmanager
async def held_at(
    server: ServerProcess, wire: str, protocol: str, count: int
) -> AsyncIterator[Holder]:
    """A client of a server, of which nothing may be left in the end."""
    await server.warm_up()
    before = await server.counts()
    target = address(wire, server.place(wire))
    target = " ".join(target) if wire == "stdio" else target
    more = [str(server.authority.ca)] if wire == "tls" else []
    async with holding(target, protocol, count, *more) as holder:
        following = before["subscriptions"] + count
        await until(server, lambda now: now["subscriptions"] == following)
        yield holder
    await until(server, lambda now: all(now[k] <= before[k] for k in before if k != "pid"))


@BOTH
async def test_a_client_killed_with_a_thousand_subscriptions_leaves_none(
    wary_server: ServerProcess, wire: str, protocol: str
) -> None:
    async with held_at(wary_server, wire, protocol, 1000) as holder:
        holder.process.kill()


@BOTH
async def test_killed_with_a_server_process_of_its_own(tmp_path: Path, protocol: str) -> None:
    command = f"{sys.executable} {HERE / 'server.py'} {tmp_path / 'journal'}"
    async with holding(command, protocol, 1000) as holder:
        children = holder.children()
        assert children
        holder.process.kill()
        await eventually(lambda: not any(map(runs, children)))


@BOTH
async def test_a_client_frozen_for_a_while_hears_what_it_missed(
    lasting_server: ServerProcess, wire: str, protocol: str
) -> None:
    async with (
        held_at(lasting_server, wire, protocol, 10) as holder,
        lasting_server.client("tcp") as other,
    ):
        holder.freeze()
        for _ in range(20):
            await other.call_tool("touch", {"uri": "thing://7"})
        holder.thaw()
        await holder.says("thing://7")


@pytest.mark.parametrize(
    ("wire", "protocol"),
    [*((wire, LEGACY) for wire in ("stdio", "tcp", "tls", "unix", "ws")), ("ws", MODERN)],
)
async def test_a_client_frozen_past_the_keepalive_is_dropped_and_comes_back(
    wary_server: ServerProcess, wire: str, protocol: str
) -> None:
    async with held_at(wary_server, wire, protocol, 10) as holder:
        holder.freeze()
        await until(wary_server, lambda now: now["subscriptions"] == 0)
        holder.thaw()  # it finds its connection gone and comes back
        await until(wary_server, lambda now: now["subscriptions"] == 10)


async def test_a_frozen_client_with_a_server_process_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    times = "env PING_INTERVAL=0.3 PING_PATIENCE=0.3"
    command = f"{times} {sys.executable} {HERE / 'server.py'} {tmp_path / 'journal'}"
    async with holding(f"{command} tcp={port} stdio", LEGACY, 10) as holder:
        pid = (await counts_at(port))["pid"]
        holder.freeze()
        await eventually(lambda: not runs(pid))
        holder.thaw()  # it finds its server gone and starts another
        await eventually(lambda: is_followed(port, 10), PATIENCE)


async def is_followed(port: int, count: int) -> bool:
    """Whether there is a server that has as many subscriptions."""
    try:
        return bool((await counts_at(port))["subscriptions"] == count)
    except ConnectionLost:
        return False


def connected(server: ServerProcess, wire: str) -> socket.socket:
    """A stream of bytes to the server; inside TLS where the wire is that."""
    place = server.place(wire)
    if isinstance(place, Path):
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(str(place))
        return peer
    peer = socket.create_connection(("127.0.0.1", place))
    if wire == "tls":
        context = ssl.create_default_context(cafile=server.authority.ca)
        return context.wrap_socket(peer, server_hostname="localhost")
    return peer


class Peer:
    """A client by hand, on a byte stream."""

    def __init__(self, server: ServerProcess, wire: str) -> None:
        self.socket = connected(server, wire)
        self.socket.settimeout(PATIENCE)
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


@pytest.mark.parametrize("wire", ["tcp", "tls", "unix"])
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


@pytest.mark.parametrize("wire", ["tcp", "tls", "unix"])
async def test_a_client_that_answers_pings_stays(wary_server: ServerProcess, wire: str) -> None:
    with greeted(wary_server, wire) as peer:
        for _ in range(4):
            asked = await asyncio.to_thread(peer.hear, method="ping")
            peer.say({"id": asked["id"], "result": {}})
        peer.say({"id": "ours", "method": "ping"})
        assert peer.hear(id="ours") == {"jsonrpc": "2.0", "id": "ours", "result": {}}


@pytest.mark.parametrize("wire", ["tcp", "tls", "unix", "http", "ws"])
async def test_garbage_from_a_client(lasting_server: ServerProcess, wire: str) -> None:
    server = lasting_server
    await server.warm_up()
    before = await server.counts()
    async with server.client(wire, reconnect=False) as client:
        for data in GARBAGE:
            with connected(server, wire) as peer:
                peer.sendall(data)
                assert not (await client.call_tool("charge", {"key": "beside"})).is_error
        if wire == "tls":  # and before its handshake
            with socket.create_connection(("127.0.0.1", server.tls)) as peer:
                peer.sendall(GARBAGE[0])
                assert not (await client.call_tool("charge", {"key": "beside"})).is_error
    await until(server, lambda now: all(now[k] <= before[k] for k in before if k != "pid"))


async def test_garbage_from_a_client_on_stdio(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, HERE / "server.py", tmp_path / "journal"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for number, data in enumerate(GARBAGE):
                params = {"name": "charge", "arguments": {"key": "after"}}
                call = json.dumps(modern("tools/call", params, id=number)[1]).encode()
                process.stdin.write(data + b"\n" + call + b"\n")
                process.stdin.flush()
                answer: dict[str, Any] = {}
                while answer.get("id") != number:  # before it what was wrong with the garbage
                    answer = json.loads(await asyncio.to_thread(process.stdout.readline))
                assert not answer["result"].get("isError")
        finally:
            process.kill()
