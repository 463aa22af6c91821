"""The scene of `tests.deployment.scene` on other servers: four processes, no stickiness, a killer.

    python -m bench.scene_peers --seconds 15

Every process has sessions of its own there, so this reports what such a balancer does to them, beside
mcpearl with a store. Clients are ours; a call is `add`. Every second, once all processes listen, one of
them is killed and started again.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress

from tests.deployment.round_robin import balancing
from tests.ports import free_port
from tests.redis_server import running

from bench.environments import clean_environ
from bench.http_server import http_command
from bench.peers import FASTMCP, MCP, MCPEARL, Peer
from mcpearl import Client, McpearlError
from mcpearl.protocol.errors import ConnectionLost

PROCESSES, CLIENTS = 4, 4


class Machine:
    """One process, which is started again when it was killed."""

    def __init__(self, command: list[str], added: dict[str, str]) -> None:
        self.port = free_port()
        self._command = [*command, str(self.port)]
        self._environ = clean_environ() | added
        self.start()

    def start(self) -> None:
        """Start it; it listens some time later."""
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            self._command, env=self._environ, stdin=quiet, stdout=quiet, stderr=quiet
        )

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    async def listens(self) -> None:
        """Wait until it accepts connections."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(0.05)


async def use(url: str, until: float, outcomes: Counter[str]) -> None:
    """Call in a session of 2025-11-25 until time is up; a client that is lost is replaced."""
    while time.monotonic() < until:
        try:
            async with asyncio.timeout(30), Client(url, protocol="2025-11-25") as client:
                outcomes["clients that connected"] += 1
                while time.monotonic() < until:
                    try:
                        await client.call_tool("add", {"a": 1, "b": 2}, timeout=5.0)
                        outcomes["answered"] += 1
                    except ConnectionLost as error:
                        # It was under way in the process that was killed, and is not repeated.
                        outcomes["may have run" if error.maybe_executed else "not run"] += 1
                    except McpearlError:
                        outcomes["failed"] += 1
                    await asyncio.sleep(0.02)
        except (McpearlError, TimeoutError):
            outcomes["clients that were lost or did not connect"] += 1
            await asyncio.sleep(0.1)


async def play(peer: Peer, seconds: float, added: dict[str, str]) -> dict[str, int]:
    """Play the scene on the servers of one peer."""
    machines = [Machine(http_command(peer), added) for _ in range(PROCESSES)]
    outcomes: Counter[str] = Counter()
    try:
        for machine in machines:
            await machine.listens()
        async with balancing([machine.port for machine in machines]) as balancer:
            url = f"http://127.0.0.1:{balancer.port}/mcp"
            until = time.monotonic() + seconds
            users = [asyncio.create_task(use(url, until, outcomes)) for _ in range(CLIENTS)]
            turn = 0
            while time.monotonic() < until:
                await asyncio.sleep(1.0)
                await asyncio.gather(*(machine.listens() for machine in machines))
                machines[turn % PROCESSES].kill()
                machines[turn % PROCESSES].start()
                turn += 1
            await asyncio.gather(*users)
    finally:
        for machine in machines:
            machine.kill()
    return dict(outcomes)


def main() -> None:
    """Play it on every peer, and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    seconds = parser.parse_args().seconds
    with running("redis") as store:
        for peer, added in ((MCPEARL, {"MCPEARL_STORE": store.url}), (MCP, {}), (FASTMCP, {})):
            figures = asyncio.run(play(peer, seconds, added))
            print(peer.title, json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
