"""A server process, a network in front of it, and clients on every wire; and what must be left of it.

`World` starts the processes and counts what everybody holds before and after.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcpearl import Client, ConnectionLost, Reconnect
from mcpearl.client.handshake import legacy_servers
from mcpearl.net.tls import Tls
from tests.waiting import eventually, wait_until

from ..ports import free_port
from ..transports.certificates import Authority
from .proxy import FaultProxy, Place

HERE = Path(__file__).parent
QUICK = Reconnect(delays=(0.02, 0.05, 0.1))
LEGACY, MODERN = "2025-11-25", "2026-07-28"
PATIENCE = 60.0  # seconds after which a test fails instead of waiting on


def address(wire: str, place: Place) -> Any:
    """What a client is given to reach a place over a wire."""
    return {
        "stdio": [sys.executable, "-S", "-E", str(HERE / "relay.py"), str(place)],
        "tcp": f"tcp://127.0.0.1:{place}",
        "tls": f"tls://127.0.0.1:{place}",
        "unix": f"unix://{place}",
        "http": f"http://127.0.0.1:{place}/mcp",
        "ws": f"ws://127.0.0.1:{place}/",
    }[wire]


class ServerProcess:
    """A server on all its wires, that can be killed, frozen and started again in the same place."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.journal = folder / "journal"
        self.tcp, self.tls, self.http, self.ws = (free_port() for _ in range(4))
        self.authority = Authority(folder)
        self._identity = self.authority.vouch("server")
        self.unix = folder / "server.sock"
        self._environment = {**os.environ, **environment}
        self._log = (folder / "server.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        wires = [
            f"tcp={self.tcp}",
            f"tls={self.tls},{self._identity.certificate},{self._identity.key}",
            f"unix={self.unix}",
            f"http={self.http}",
            f"ws={self.ws}",
        ]
        self._process = subprocess.Popen(
            [sys.executable, HERE / "server.py", self.journal, *wires],
            env=self._environment,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
        )
        wait_until(self._is_up)

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, Path(self._log.name).read_text()
        return all(map(_answers, (self.tcp, self.tls, self.http, self.ws)))

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: ") T " in Path(f"/proc/{self.pid}/stat").read_text())

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        self._log.close()

    def ran(self) -> Counter[str]:
        """How often each key was acted on."""
        return Counter(self.journal.read_text().split() if self.journal.exists() else ())

    def place(self, wire: str) -> Place:
        """Where it serves a wire."""
        place: Place = getattr(self, "tcp" if wire == "stdio" else wire)
        return place

    def client(self, wire: str, place: Place | None = None, **options: Any) -> Client:
        """A client of it, with nothing in between unless another place is given."""
        if wire == "tls":
            options["tls"] = Tls(ca=self.authority.ca)
        return Client(address(wire, place or self.place(wire)), **options)

    async def warm_up(self) -> None:
        """Have what the server makes for the first client of a kind, and keeps, made."""
        await self.counts()
        async with self.client("http", protocol=MODERN) as client:
            await client.list_tools()

    async def counts(self) -> dict[str, Any]:
        """What the server holds, by its own account, without the connection that asks."""
        return await counts_at(self.tcp)


async def counts_at(port: int) -> dict[str, Any]:
    """What the server at a TCP port holds."""
    url = address("tcp", port)
    async with Client(url, protocol=MODERN, reconnect=False) as client:
        result = await client.call_tool("counts")
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class World:
    """One wire through one network to one server."""

    def __init__(self, wire: str, server: ServerProcess, folder: Path) -> None:
        self.wire = wire
        self.server = server
        self.near: Place = folder / "near.sock" if wire == "unix" else free_port()
        self.proxy = FaultProxy(self.near, server.place(wire))
        self.mark = uuid.uuid4().hex[:8]  # begins the keys of this test

    def client(self, **options: Any) -> Client:
        """A client that comes back quickly."""
        legacy_servers.clear()
        return self.server.client(self.wire, self.near, **{"reconnect": QUICK, **options})

    @asynccontextmanager
    async def standing(self) -> AsyncIterator["World"]:
        """Hold the network up; afterwards nobody holds what was not held before."""
        await self.server.warm_up()
        at_server = await self.server.counts()
        before = held()
        await self.proxy.accept()
        try:
            yield self
        finally:
            await self.proxy.close()
        await eventually(lambda: not held() - before, PATIENCE, lambda: held() - before)
        await self._settled(at_server)

    async def _settled(self, before: dict[str, Any]) -> None:
        """Wait until the server holds what it held."""
        deadline = time.monotonic() + PATIENCE
        while (now := await self.server.counts()) and time.monotonic() < deadline:
            more = {k: now[k] - before[k] for k in now if k != "pid" and now[k] > before[k]}
            if not more:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the server still holds {more} more than before")


def held() -> Counter[str]:
    """What this process holds: tasks, descriptors by kind, children."""
    found: Counter[str] = Counter()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        found[f"task {task.get_coro()!r:.90}".split(" at 0x")[0]] += 1
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            kind = str(descriptor.readlink()).partition(":")[0]
        except OSError:
            continue  # the one that lists them
        found[f"descriptor {kind if kind in ('socket', 'pipe') else 'file'}"] += 1
    for thread in Path("/proc/self/task").iterdir():
        found["process"] += len((thread / "children").read_text().split())
    return found


class Outcomes:
    """The one outcome of each call, by its key."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.maybe: list[str] = []  # lost, and may have run
        self.not_sent: list[str] = []  # lost, and did not run

    def __len__(self) -> int:
        return len(self.done) + len(self.maybe) + len(self.not_sent)

    async def of(self, key: str, call: Awaitable[Any]) -> None:
        try:
            result = await call
        except ConnectionLost as lost:
            (self.maybe if lost.maybe_executed else self.not_sent).append(key)
        else:
            assert result.content[0].text.startswith(key)
            self.done.append(key)

    def check(self, ran: Counter[str], *, once: bool) -> None:
        """Hold what callers were told against what happened."""
        everything = self.done + self.maybe + self.not_sent
        assert len(set(everything)) == len(everything)  # no caller was told twice
        assert not [key for key in self.not_sent if ran[key]]
        assert not [key for key in self.done if not ran[key]]
        if once:
            assert not [key for key in everything if ran[key] > 1]
