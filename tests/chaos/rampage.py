"""Kills every part of a real server with all it can have, in turn and then at random, under load.

The server has all wires, a store in Redis, receipts, an exporter, isolated tools, tasks, and two mounted
servers: one at an address, one that is a process. Its processes are killed as well, and beside it the
workers of a server with two of them, and a server on stdio whose client starts it again.

Every call has exactly one outcome, the tree is whole again afterwards, and nothing is left behind.
`make chaos` runs it for two minutes; the tests for a few seconds.
"""

import asyncio
import json
import logging
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from mcpearl import Client, ConnectionLost, McpError, Reconnect, RequestTimeout
from mcpearl.receipts.verifier import Log, load_keys
from tests.chaos.parts import can_be_killed, expected
from tests.ports import free_port
from tests.redis_server import running as redis_running
from tests.telemetry.collector import Collector, collecting
from tests.waiting import eventually

_QUICK = Reconnect(delays=(0.02, 0.1, 0.3))
_CALLERS = 3  # tasks that call, per client
_YOUNG = (
    0.05  # seconds within which a part that was killed is killed again, where it is back by then
)
_ROOT = Path(__file__).parents[2]
_SERVER = "tests.chaos.server"
_ECHOING = "tests.chaos.echoing"
KINDS = ("isolated", "zygote", "mounted", "worker", "stdio")
"""The kinds of processes that are killed."""


@dataclass
class Report:
    """What was killed, and what became of the calls."""

    parts: Counter[str] = field(default_factory=Counter)
    """How often each part of the tree was killed, by its path."""
    again: int = 0
    """How many of these were killed while they were starting again."""
    processes: Counter[str] = field(default_factory=Counter)
    """How often a process of each kind was killed."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """How the calls ended."""
    tree: set[str] = field(default_factory=set)
    """The parts of the tree that can be killed, when it was whole at first."""

    def __str__(self) -> str:
        lines = [
            f"{self.parts.total()} parts killed, {self.again} of them while they started again",
            ", ".join(f"{name}: {count}" for name, count in sorted(self.parts.items())),
            f"{self.processes.total()} processes killed: {dict(self.processes)}",
            f"calls: {dict(self.outcomes)}",
        ]
        return "\n".join(lines)


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

    def kill(self, kind: str, chance: random.Random) -> bool:
        """Kill a process of this kind; return False where there is none at the moment."""
        with suppress(psutil.NoSuchProcess, IndexError):
            chance.choice(self._of(kind)).kill()
            return True
        return False

    def _of(self, kind: str) -> list[psutil.Process]:
        match kind:
            case "zygote":
                return self._zygotes()
            case "isolated":
                return [each for zygote in self._zygotes() for each in zygote.children()]
            case "mounted":
                return [each for each in self._server.children(recursive=True) if _is_stdio(each)]
            case "worker":
                return self._crew.children()
        return [each for each in psutil.Process().children() if _is_stdio(each)]

    def _zygotes(self) -> list[psutil.Process]:
        return [each for each in self._server.children() if _SERVER in each.cmdline()]


def _is_stdio(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        command = process.cmdline()
        return _ECHOING in command and len(command) == 4
    return False


@contextmanager
def _crew(log: Path, port: int) -> Iterator[int]:
    """Run a server with two workers."""
    command = [sys.executable, "-m", _ECHOING, str(log), str(port)]
    with subprocess.Popen(command, cwd=_ROOT) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


async def rampage(seconds: float, seed: int) -> Report:
    """Run the load and the kills; return what was killed, and how the calls ended."""
    many = free_port()
    with (
        tempfile.TemporaryDirectory() as made,
        redis_running("redis", "--appendfsync", "no") as redis,
        collecting() as collector,
        _crew(Path(made) / "log", many) as crew,
    ):
        folder = Path(made)
        settings = {
            "log": str(folder / "log"),
            **{wire: free_port() for wire in ("http", "tcp", "ws")},
            "unix": str(folder / "s"),
            "store": redis.url,
            "receipts": str(folder / "receipts"),
            "far": f"http://127.0.0.1:{many}/mcp",
        }
        report = await _attack(settings, crew, collector, folder, seconds, random.Random(seed))
        assert not Path(settings["unix"]).exists(), "the Unix socket was left behind"
        await eventually(lambda: _are_whole(folder / "receipts"), otherwise=lambda: "the receipts")
    left = [each for each in psutil.Process().children(recursive=True) if _is_ours(each)]
    assert not left, f"processes were left behind: {left}"
    return report


async def _attack(
    settings: dict[str, Any],
    crew: int,
    collector: Collector,
    folder: Path,
    seconds: float,
    chance: random.Random,
) -> Report:
    temporary = folder / "temporary"
    temporary.mkdir()
    own = {"inherit_env": True, "cwd": str(_ROOT)}
    quiet = {**own, "env": {"TMPDIR": str(temporary)}}
    exporting = {**own, "env": {**quiet["env"], **_exporting_to(collector)}}
    command = [sys.executable, "-m", _SERVER, json.dumps(settings)]
    http = f"http://127.0.0.1:{settings['http']}/mcp"
    async with (
        Client(command, reconnect=False, validate_output=False, **exporting) as control,
        _stacks_if_silent(),
    ):
        loads = [
            Load("http", http),
            Load("http legacy", http, protocol="2025-11-25"),
            Load("isolated", http, "isolated"),
            Load("task", http, "task"),
            Load("far", http, "far__echo"),
            Load("near", http, "near__echo"),
            Load("tcp", f"tcp://127.0.0.1:{settings['tcp']}"),
            Load("unix", f"unix://{settings['unix']}"),
            Load("ws", f"ws://127.0.0.1:{settings['ws']}/"),
            Load("ws beside http", f"ws://127.0.0.1:{settings['http']}/ws"),
            Load("workers", settings["far"]),
            Load("stdio", [sys.executable, "-m", _ECHOING, settings["log"]], **quiet),
        ]
        await _wait_until_whole(control)
        await _warm_up(control)
        victims = Victims(await _value(control, "pid"), crew)
        await eventually(lambda: len(psutil.Process(crew).children()) == 2)
        before = await _census(control)
        report = await _under_load(control, loads, victims, chance, seconds)
        assert report.tree == expected(settings)
        await _wait_until_whole(control)
        assert {"/".join(each) for each in await _killable(control)} == report.tree
        _check_executions(Path(settings["log"]), loads)
        now: dict[str, int] = {}

        async def nothing_left() -> bool:
            now.update(await _census(control))
            return _is_settled(now, before)

        await eventually(nothing_left, within=60, otherwise=lambda: (before, now))
    assert not list(temporary.iterdir()), "temporary files were left behind"
    assert any(span["name"] == "tools/call echo" for span in collector.spans), (
        "nothing was exported"
    )
    return report


@asynccontextmanager
async def _stacks_if_silent() -> AsyncIterator[None]:
    """Have the server write what it does to its log, if it does not answer what is never killed."""
    try:
        yield
    except RequestTimeout:
        for each in psutil.Process().children():
            if _SERVER in each.cmdline():
                each.send_signal(signal.SIGUSR1)  # the threads
                each.send_signal(signal.SIGUSR2)  # the tree, the calls and the tasks
        await asyncio.sleep(3)
        raise


def _exporting_to(collector: Collector) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_TRACES_SAMPLER": "traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.05",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
    }


def _are_whole(receipts: Path) -> bool:
    """Whether the log that many processes have written, one after the other, is as it was written."""
    Log(receipts, load_keys([str(receipts / "key.pub")])).verify()
    return True


def _is_ours(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(each in process.cmdline() for each in (_SERVER, _ECHOING))
    return False


async def _warm_up(control: Client) -> None:
    """Have both processes of the isolated tool started, and a task run: leases are kept from then on."""
    calls = ({"id": f"warm {number}", "pause": 0.3} for number in range(2))
    await asyncio.gather(*(control.call_tool("isolated", each) for each in calls))
    await control.call_tool("task", {"id": "warm"})


async def _killable(control: Client) -> list[list[str]]:
    return [path for path in await _value(control, "paths") if can_be_killed(path)]


async def _under_load(
    control: Client,
    loads: list[Load],
    victims: Victims,
    chance: random.Random,
    seconds: float,
) -> Report:
    stop = asyncio.Event()
    for load in loads:
        await load.client.connect()
    callers = [
        asyncio.ensure_future(load.call_until(stop, chance))
        for load in loads
        for _ in range(_CALLERS)
    ]
    report = Report()

    async def kill(path: list[str]) -> bool:
        killed: bool = await _value(control, "kill", path=path)
        if killed:
            report.parts["/".join(path)] += 1
        return killed

    try:
        paths = await _killable(control)
        report.tree = {"/".join(path) for path in paths}
        # At least once each, the worst moment being any: there are always calls in hand.
        for path in paths:
            await eventually(lambda path=path: kill(path), otherwise=lambda path=path: path)  # type: ignore[misc]
            await asyncio.sleep(chance.uniform(0.05, 0.25))
        for kind in KINDS:
            await eventually(lambda kind=kind: victims.kill(kind, chance))  # type: ignore[misc]
            report.processes[kind] += 1
            await asyncio.sleep(chance.uniform(0.05, 0.25))
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            if chance.random() < 0.6:
                path = chance.choice(paths)
                if await kill(path) and chance.random() < 0.5:
                    report.again += await _kill_young(lambda path=path: kill(path))  # type: ignore[misc]
            else:
                kind = chance.choice(KINDS)
                if victims.kill(kind, chance):
                    report.processes[kind] += 1
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
    for load in loads:
        report.outcomes += load.outcomes
        assert load.begun == load.outcomes.total(), f"{load.name}: a call without an outcome"
    return report


async def _kill_young(kill: Any) -> bool:
    """Kill a part again as soon as it is back, in the middle of its start where it takes a while."""
    until = asyncio.get_running_loop().time() + _YOUNG
    while asyncio.get_running_loop().time() < until:
        if await kill():
            return True
    return False


async def _wait_until_whole(control: Client) -> None:
    states: dict[str, str] = {}

    async def whole() -> bool:
        states.clear()
        states.update((await control.call_tool("tree")).structured_content or {})
        return not _broken(states) and len(states) >= 10

    await eventually(whole, within=60, otherwise=lambda: _broken(states))


def _broken(states: dict[str, str]) -> dict[str, str]:
    return {
        name: state
        for name, state in states.items()
        if state != "running" and not name.endswith("flaky")
    }


async def _census(control: Client) -> dict[str, int]:
    return dict((await control.call_tool("census")).structured_content or {})


def _is_settled(now: dict[str, int], before: dict[str, int]) -> bool:
    # `flaky` may be waiting or running, which is a task more or less; a thread may be idle.
    return (
        now["tasks"] <= before["tasks"] + 1
        and now["descriptors"] <= before["descriptors"]
        and now["connections"] <= before["connections"] + 1
        and now["calls"] == 1
        and now["names"] == 0
        and now["task runs"] == 0
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
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    print(f"chaos for {seconds:g} s, seed {seed}", flush=True)
    report = asyncio.run(rampage(seconds, seed))
    print(report)
    left = report.tree - report.parts.keys()
    if left:
        sys.exit(f"these parts were not killed: {sorted(left)}")


if __name__ == "__main__":
    main()
