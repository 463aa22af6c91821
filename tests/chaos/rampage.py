"""Kills every part of a real server on all wires, in turn and then at random, under load.

The processes it has for an isolated tool are killed as well, and beside it the workers of a server
with two of them, and a server on stdio whose client starts it again.

Every call has exactly one outcome, the tree is whole again afterwards, and nothing is left behind.
`make chaos` runs it for two minutes; the tests for a few seconds.
"""

import asyncio
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from mcpearl import Client, ConnectionLost, McpearlError, McpError, Reconnect, RequestTimeout
from tests.ports import free_port
from tests.waiting import eventually

_QUICK = Reconnect(delays=(0.02, 0.1, 0.3))
_CALLERS = 3  # tasks that call, per client
_ROOT = Path(__file__).parents[2]
_SERVER = "tests.chaos.server"
_ECHOING = "tests.chaos.echoing"


class Load:
    """One client that calls all the time, and what became of its calls."""

    def __init__(self, name: str, target: str | list[str], tool: str = "echo", **options: Any):
        self.name = name
        self._tool = tool
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
                result = await self.client.call_tool(self._tool, {"id": id, "pause": pause})
            except (ConnectionLost, RequestTimeout, McpError) as error:
                self.outcomes[type(error).__name__] += 1
                self.lost.append(id)
            else:
                if result.is_error:  # the process of an isolated tool was killed
                    self.outcomes["failed"] += 1
                    self.lost.append(id)
                    continue
                assert result.structured_content == {"result": id}, "another call's answer"
                self.outcomes["answered"] += 1
                self.answered.append(id)
            await asyncio.sleep(0.002)


async def _value(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    return result.structured_content["result"]  # type: ignore[index]


class Victims:
    """The processes that are killed, beside the parts of the tree.

    Args:
        server: The server with the tree.
        crew: The parent of the workers.
    """

    def __init__(self, server: int, crew: int) -> None:
        self._server = psutil.Process(server)
        self._crew = psutil.Process(crew)

    def kill_one(self, chance: random.Random) -> str:
        """Kill a process; return what it was, or nothing where there is none at the moment."""
        kind = chance.choice(("isolated", "isolated", "zygote", "worker", "stdio"))
        return self.kill(kind, chance)

    def kill(self, kind: str, chance: random.Random) -> str:
        """Kill a process of this kind."""
        with suppress(psutil.NoSuchProcess, IndexError):
            chance.choice(self._of(kind)).kill()
            return kind
        return ""

    def _of(self, kind: str) -> list[psutil.Process]:
        zygotes = self._server.children()
        match kind:
            case "zygote":
                return zygotes
            case "isolated":
                return [each for zygote in zygotes for each in zygote.children()]
            case "worker":
                return self._crew.children()
        return [each for each in psutil.Process().children() if _is_stdio(each)]


def _is_stdio(process: psutil.Process) -> bool:
    command = process.cmdline()
    return _ECHOING in command and len(command) == 4


@contextmanager
def _crew(log: Path, port: int) -> Iterator[int]:
    """Run a server with two workers."""
    command = [sys.executable, "-m", _ECHOING, str(log), str(port)]
    with subprocess.Popen(command, cwd=_ROOT) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


async def rampage(seconds: float, seed: int) -> Counter[str]:
    """Run the load and the kills; return how the calls ended, and how many parts were killed."""
    chance = random.Random(seed)
    http, tcp, ws, many = free_port(), free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder, _crew(Path(folder) / "log", many) as crew:
        path, log = Path(folder) / "s", Path(folder) / "log"
        ports = [str(http), str(tcp), str(ws)]
        command = [sys.executable, "-m", _SERVER, str(log), *ports, str(path)]
        temporary = Path(folder) / "temporary"
        temporary.mkdir()
        quiet = {"inherit_env": True, "cwd": str(_ROOT), "env": {"TMPDIR": str(temporary)}}
        async with Client(command, reconnect=False, validate_output=False, **quiet) as control:
            loads = [
                Load("http", f"http://127.0.0.1:{http}/mcp"),
                Load("http legacy", f"http://127.0.0.1:{http}/mcp", protocol="2025-11-25"),
                Load("isolated", f"http://127.0.0.1:{http}/mcp", "isolated"),
                Load("tcp", f"tcp://127.0.0.1:{tcp}"),
                Load("unix", f"unix://{path}"),
                Load("ws", f"ws://127.0.0.1:{ws}/"),
                Load("ws beside http", f"ws://127.0.0.1:{http}/ws"),
                Load("workers", f"http://127.0.0.1:{many}/mcp"),
                Load("stdio", [sys.executable, "-m", _ECHOING, str(log)], **quiet),
            ]
            await _wait_until_whole(control)
            await _warm_up(control)
            victims = Victims(await _value(control, "pid"), crew)
            await eventually(lambda: len(psutil.Process(crew).children()) == 2)
            before = await _settled_census(control)
            total = await _under_load(control, loads, victims, chance, seconds)
            await _wait_until_whole(control)
            _check_executions(log, loads)
            await eventually(lambda: _nothing_left(control, before), within=60)
        assert not path.exists(), "the Unix socket was left behind"
        assert not list(temporary.iterdir()), "temporary files were left behind"
    left = [each for each in psutil.Process().children(recursive=True) if _is_ours(each)]
    assert not left, f"processes were left behind: {left}"
    return total


def _is_ours(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(each in process.cmdline() for each in (_SERVER, _ECHOING))
    return False


async def _warm_up(control: Client) -> None:
    """Have both processes of the isolated tool started."""
    calls = ({"id": f"warm {number}", "pause": 0.3} for number in range(2))
    await asyncio.gather(*(control.call_tool("isolated", each) for each in calls))


async def _under_load(
    control: Client,
    loads: list[Load],
    victims: Victims,
    chance: random.Random,
    seconds: float,
) -> Counter[str]:
    stop = asyncio.Event()
    for load in loads:
        await load.client.connect()
    callers = [
        asyncio.ensure_future(load.call_until(stop, chance))
        for load in loads
        for _ in range(_CALLERS)
    ]
    killed: Counter[str] = Counter()
    try:
        # At least once each, the worst moment being any: there are always calls in hand.
        paths = await _value(control, "paths")
        for part in paths:
            killed["killed"] += await _value(control, "kill", path=part)
            await asyncio.sleep(chance.uniform(0.05, 0.25))
        for kind in ("isolated", "zygote", "worker", "stdio"):
            killed[f"killed {victims.kill(kind, chance)}"] += 1
            await asyncio.sleep(chance.uniform(0.05, 0.25))
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            if chance.random() < 0.6:
                killed["killed"] += await _value(control, "kill", path=chance.choice(paths))
            elif kind := victims.kill_one(chance):
                killed[f"killed {kind}"] += 1
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
    total = killed
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
        and now["names"] == 0
    )


def _check_executions(log: Path, loads: list[Load]) -> None:
    """Check that what was answered was run once, and what was lost at most once."""
    executed = Counter(log.read_text().splitlines())
    for load in loads:
        for ids, least in ((load.answered, 1), (load.lost, 0)):
            wrong = [id for id in ids if not least <= executed[id] <= 1]
            assert not wrong, f"{load.name}: not run once: {wrong[:10]}"


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
