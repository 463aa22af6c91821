"""The scene of `tests.deployment.scene` on other servers, reported beside mcpearl's.

    python -m bench.scene_peers --seconds 60

The clients are the same (ours in three versions, both TypeScript SDKs, the official Python SDK), and so
are the tools, the balancer, and a kill every second. What differs, because the other servers have nothing
that it could be the same with:

- There is no store to share, so none is restarted or stopped.
- A machine is two processes with a port each, which the scene starts again; there is no parent.
- A killed process is followed by the next kill only when all processes listen: they start slowly.
- No tool is a task.
- Our clients that lose their session begin another one, or they would stop at the first request. A call
  is given up after ten seconds, since an answer that landed at the wrong process is waited for in vain.
- Nothing is asserted: the books are reported, with the faults that the scene would have failed for.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.deployment import strangers
from tests.deployment.books import Books, ServerNotes
from tests.deployment.round_robin import balancing
from tests.deployment.scene import KINDS, Visitor
from tests.deployment.scene import play as play_ours
from tests.ports import free_port

from bench.environments import clean_environ
from bench.peers import FASTMCP, MCP, Peer, command
from bench.progress import say
from mcpearl import McpearlError

MACHINES, PROCESSES, CLIENTS = 2, 2, 8
PATIENCE = 10.0  # seconds a call is waited for
START = 60.0  # seconds a process has to start


class PeerProcess:
    """One process, which is started again when it was killed."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.port = free_port()
        self._command = [*command, str(self.port), str(log)]
        self.start()

    def start(self) -> None:
        """Start it; it listens some time later."""
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            self._command, env=clean_environ(), stdin=quiet, stdout=quiet, stderr=quiet
        )

    def kill(self) -> int:
        """Kill it with SIGKILL; return which it was."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return self._process.pid

    async def listens(self) -> None:
        """Wait until it accepts connections."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("a process did not start")


async def _visit(visitor: Visitor, url: str, until: float, counts: Counter[str]) -> None:
    """Call until time is up; a client that is lost is replaced."""
    number = 1

    def noticed(notice: Any) -> None:
        counts["updates heard"] += notice.method == "notifications/resources/updated"

    while time.monotonic() < until:
        try:
            async with visitor.client(url, on_notification=noticed, connect_timeout=5) as client:
                counts["our clients that connected"] += 1
                try:
                    await client.subscribe("state://a")
                    counts["subscriptions"] += 1
                except McpearlError:
                    counts["subscriptions refused"] += 1
                number = await visitor.use(client, until, number)
        except (McpearlError, TimeoutError):
            counts["our clients that were lost"] += 1
            await asyncio.sleep(0.1)


async def _kill(processes: list[PeerProcess], books: Books, until: float) -> None:
    while time.monotonic() < until:
        await asyncio.sleep(1.0)
        await asyncio.gather(*(process.listens() for process in processes))
        chosen = processes[books.kills % len(processes)]
        books.killed.add(chosen.kill())
        chosen.start()
        books.kills += 1


async def play(peer: Peer, seconds: float) -> dict[str, Any]:
    """Play the scene on the servers of one peer."""
    books, counts = Books(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ran"
        log.touch()
        count = MACHINES * PROCESSES
        processes = [PeerProcess(command(peer, "scene"), log) for _ in range(count)]
        try:
            await asyncio.gather(*(process.listens() for process in processes))
            ports = [process.port for process in processes]
            async with balancing(ports, watch=books.ledger.note) as balancer:
                url = f"http://127.0.0.1:{balancer.port}/mcp"
                until = time.monotonic() + seconds
                visitors = [
                    Visitor(books, f"client{n}", KINDS[n % len(KINDS)], PATIENCE)
                    for n in range(CLIENTS)
                ]
                ours = [_visit(visitor, url, until, counts) for visitor in visitors]
                others = [
                    strangers.visit(each, url, seconds, books) for each in strangers.STRANGERS
                ]
                ended = await asyncio.gather(
                    _kill(processes, books, until), *ours, *others, return_exceptions=True
                )
        finally:
            for process in processes:
                process.kill()
        faults = books.faults(ServerNotes(log.read_text()))
    faults += [str(each).splitlines()[0] for each in ended if isinstance(each, BaseException)]
    return {**books.figures(), **counts, "faults": faults}


def main() -> None:
    """Play it on every peer, and print the books."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    say("scene: mcpearl")
    figures = asyncio.run(play_ours("redis", seconds, CLIENTS, strangers=True))
    print("mcpearl", json.dumps(figures, indent=2))
    for peer in (MCP, FASTMCP):
        say(f"scene: {peer.title}")
        print(peer.title, json.dumps(asyncio.run(play(peer, seconds)), indent=2))


if __name__ == "__main__":
    main()
