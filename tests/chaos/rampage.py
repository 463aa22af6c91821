"""Kills every part of a real server on all wires, in turn and then at random, under load.

Every call has exactly one outcome, the tree is whole again afterwards, and nothing is left behind.
`make chaos` runs it for two minutes; the tests for a few seconds.
"""

import asyncio
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from mcpearl import Client, ConnectionLost, McpearlError, McpError, Reconnect, RequestTimeout
from tests.ports import free_port
from tests.waiting import eventually

_QUICK = Reconnect(delays=(0.02, 0.1, 0.3))
_CALLERS = 3  # tasks that call, per client
SERVER = Path(__file__).with_name("server.py")


class Load:
    """One client that calls all the time, and what became of its calls."""

    def __init__(self, name: str, target: str, **options: Any) -> None:
        self.name = name
        self.client = Client(target, reconnect=_QUICK, timeout=20, validate_output=False, **options)
        self.outcomes: Counter[str] = Counter()
        self.answered: list[str] = []
        self.lost: list[str] = []
        self.begun = 0

    async def call_until(self, stop: asyncio.Event, chance: random.Random) -> None:
        while not stop.is_set():
            self.begun += 1
            id = f"{self.name} {self.begun}"
            pause = chance.choice((0.0, 0.0, 0.0, 0.005, 0.05))
            try:
                result = await self.client.call_tool("echo", {"id": id, "pause": pause})
            except (ConnectionLost, RequestTimeout, McpError) as error:
                self.outcomes[type(error).__name__] += 1
                self.lost.append(id)
            else:
                assert result.structured_content == {"result": id}, "another call's answer"
                self.outcomes["answered"] += 1
                self.answered.append(id)
            await asyncio.sleep(0.002)


async def _value(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    return result.structured_content["result"]  # type: ignore[index]


async def rampage(seconds: float, seed: int) -> Counter[str]:
    """Run the load and the kills; return how the calls ended, and how many parts were killed."""
    chance = random.Random(seed)
    http, tcp, ws = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        command = [sys.executable, str(SERVER), str(http), str(tcp), str(ws), str(path)]
        async with Client(
            command, reconnect=False, inherit_env=True, validate_output=False
        ) as control:
            loads = [
                Load("http", f"http://127.0.0.1:{http}/mcp"),
                Load("http legacy", f"http://127.0.0.1:{http}/mcp", protocol="2025-11-25"),
                Load("tcp", f"tcp://127.0.0.1:{tcp}"),
                Load("unix", f"unix://{path}"),
                Load("ws", f"ws://127.0.0.1:{ws}/"),
                Load("ws beside http", f"ws://127.0.0.1:{http}/ws"),
            ]
            await _wait_until_whole(control)
            before = await _settled_census(control)
            total = await _under_load(control, loads, chance, seconds)
            await _wait_until_whole(control)
            await _check_executions(control, loads)
            await eventually(lambda: _nothing_left(control, before), within=60)
        assert not path.exists(), "the Unix socket was left behind"
    return total


async def _under_load(
    control: Client, loads: list[Load], chance: random.Random, seconds: float
) -> Counter[str]:
    stop = asyncio.Event()
    for load in loads:
        await load.client.connect()
    callers = [
        asyncio.ensure_future(load.call_until(stop, chance))
        for load in loads
        for _ in range(_CALLERS)
    ]
    killed = 0
    try:
        # At least once each, the worst moment being any: there are always calls in hand.
        paths = await _value(control, "paths")
        for part in paths:
            killed += await _value(control, "kill", path=part)
            await asyncio.sleep(chance.uniform(0.05, 0.25))
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            killed += await _value(control, "kill", path=chance.choice(paths))
            await asyncio.sleep(chance.uniform(0.0, 0.3))
        await _wait_until_whole(control)
        # The server serves again on every wire.
        marks = [len(load.answered) for load in loads]
        await eventually(
            lambda: all(len(load.answered) > mark for load, mark in zip(loads, marks, strict=True)),
            otherwise=lambda: {load.name: dict(load.outcomes) for load in loads},
        )
    finally:
        stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*callers)
        for load in loads:
            await load.client.close()
    total: Counter[str] = Counter(killed=killed)
    for load in loads:
        total += load.outcomes
        assert load.begun == load.outcomes.total(), f"{load.name}: a call without an outcome"
    return total


async def _wait_until_whole(control: Client) -> None:
    async def whole() -> bool:
        states = await _states(control)
        return (
            all(state == "running" or name.endswith("flaky") for name, state in states.items())
            and len(states) >= 10
        )

    await eventually(whole, otherwise=lambda: "the tree is not whole")


async def _states(control: Client) -> dict[str, str]:
    return dict((await control.call_tool("tree")).structured_content or {})


async def _settled_census(control: Client) -> dict[str, int]:
    return dict((await control.call_tool("census")).structured_content or {})


async def _nothing_left(control: Client, before: dict[str, int]) -> bool:
    now = await _settled_census(control)
    # `flaky` may be waiting or running, which is a task more or less; a thread may be idle.
    return (
        now["tasks"] <= before["tasks"] + 1
        and now["descriptors"] <= before["descriptors"]
        and now["connections"] <= before["connections"] + 1
        and now["calls"] == 1
    )


async def _check_executions(control: Client, loads: list[Load]) -> None:
    for load in loads:
        for ids, least in ((load.answered, 1), (load.lost, 0)):
            for start in range(0, len(ids), 1000):
                counts = await _value(control, "executions", ids=ids[start : start + 1000])
                assert all(least <= count <= 1 for count in counts), f"{load.name}: not run once"


def main() -> None:
    """Run for as many seconds as the first argument says, with the second as the seed."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    print(f"chaos for {seconds:g} s, seed {seed}", flush=True)
    try:
        total = asyncio.run(rampage(seconds, seed))
    except McpearlError as error:
        sys.exit(f"failed: {error}")
    print(", ".join(f"{count} {what}" for what, count in sorted(total.items())))


if __name__ == "__main__":
    main()
