"""Tasks over two workers on one file, while the workers are killed at random.

    python -m tests.server.tasks.killing --tasks 1000 --seconds 60

Clients start tasks, look at them and answer their questions. In the end each task has exactly one
outcome, and what must not be done twice was not. It prints what came about; the exit code is 1 if
anything is wrong.
"""

import argparse
import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.server.tasks.apps import TERMINAL
from tests.server.tasks.dying import effects
from tests.server.tasks.http import Caller

ROOT = Path(__file__).parents[3]
TOOLS = ("acts", "repeats", "idempotent", "asks")
AT_ONCE = 24  # clients
PATIENCE = 60.0  # seconds after the last kill for every task to end


class Clients:
    """Starts tasks one after the other, and sees each to its end."""

    def __init__(self, port: int, tasks: int, seconds: float, chance: random.Random) -> None:
        self._caller = Caller(port)
        self._tools = iter([chance.choice(TOOLS) for _ in range(tasks)])
        self._numbers = itertools.count(1)
        self._pause = seconds * AT_ONCE / tasks
        self.outcomes: dict[str, dict[str, Any]] = {}  # by id, as first seen
        self.keys: dict[str, str] = {}  # by id
        self.changed: list[str] = []  # tasks that ended twice

    async def run(self) -> None:
        """Start and follow all tasks, then look at each of them once more."""
        await asyncio.gather(*(self._work() for _ in range(AT_ONCE)))
        for id, first in self.outcomes.items():
            again = await self._until(lambda id=id: self._caller.look(id))
            if again["status"] != first["status"] or again.get("result") != first.get("result"):
                self.changed.append(id)

    async def _work(self) -> None:
        for tool in self._tools:
            began = time.monotonic()
            id = await self._until(lambda tool=tool: self._start(tool))
            self.outcomes[id] = await self._follow(id)
            await asyncio.sleep(max(0.0, began + self._pause - time.monotonic()))

    async def _start(self, tool: str) -> str:
        """Start a task under a key that no other call has, even if this one is not answered."""
        key = f"{tool}-{next(self._numbers)}"
        id: str = (await self._caller.call(tool, {"key": key}))["taskId"]
        self.keys[id] = key
        return id

    async def _follow(self, id: str) -> dict[str, Any]:
        while True:
            task = await self._until(lambda: self._caller.look(id))
            if task["status"] in TERMINAL:
                return task
            if task["status"] == "input_required":
                answer = {"action": "accept", "content": {"name": "ann"}}
                answers = dict.fromkeys(task["inputRequests"], answer)
                await self._until(lambda answers=answers: self._caller.update(id, answers))
            await asyncio.sleep(0.05)

    async def _until(self, ask: Any) -> Any:
        """Ask until there is an answer: the worker that was asked may have been killed."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await ask()
            except (OSError, EOFError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)


async def kill_at_random(pid: int, until: float, chance: random.Random) -> int:
    """Kill a worker now and then; return how many were killed."""
    killed = 0
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(1.5, 3.5))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            os.kill(int(chance.choice(children)), signal.SIGKILL)
            killed += 1
    return killed


def wrong(clients: Clients, marks: Counter[str], tasks: int) -> list[str]:
    """Say what should not have come about."""
    found = [f"{id} ended twice" for id in clients.changed]
    for key, times in marks.items():
        if key.startswith(("acts", "asks")) and times > 1:
            found.append(f"{key} was done {times} times")
    if len(clients.outcomes) != tasks:
        found.append(f"{len(clients.outcomes)} outcomes of {tasks} tasks")
    for id, outcome in clients.outcomes.items():
        key = clients.keys[id]
        times = marks[key]
        if outcome["status"] == "completed" and times == 0:
            found.append(f"{key} is completed and was not done")
        if outcome["status"] == "failed" and "may have run" not in outcome["error"]["message"]:
            found.append(f"{key} failed: {outcome['error']}")
        if outcome["status"] == "cancelled":
            found.append(f"{key} was cancelled")
    return found


async def run(tasks: int, seconds: float, seed: int) -> tuple[list[str], str]:
    """Run it all; return what is wrong, and a summary."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [sys.executable, "-m", "tests.server.tasks.dying", folder, str(port), "2"]
        server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            clients = Clients(port, tasks, seconds, chance)
            await clients._until(lambda: Caller(port).ask("server/discover", {}))
            killing = asyncio.create_task(
                kill_at_random(server.pid, time.monotonic() + seconds, chance)
            )
            await clients.run()
            killed = await killing
        finally:
            server.terminate()
            await asyncio.to_thread(server.wait)
        marks = Counter(effects(Path(folder)))
    states = Counter(outcome["status"] for outcome in clients.outcomes.values())
    return wrong(clients, marks, tasks), f"{killed} kills, {dict(states)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    chosen = parser.parse_args()
    problems, summary = asyncio.run(run(chosen.tasks, chosen.seconds, chosen.seed))
    print(f"seed {chosen.seed}: {summary}", *problems, sep="\n")
    sys.exit(bool(problems))
