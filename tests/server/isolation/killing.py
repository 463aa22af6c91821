"""Kills isolated processes by all means while calls run, and looks at what is left.

    python -m tests.server.isolation.killing --kills 10000

Every call must have exactly one outcome, and there must be no process, zombie, descriptor or temporary
file left. It prints what came about; the exit code is 1 if anything is wrong.
"""

import argparse
import asyncio
import faulthandler
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from msgspec import Struct, field

from mcpearl import Client, Isolate, Server
from tests.server.isolation.apps import children, descriptors

AT_ONCE = 8  # calls


class Report(Struct):
    """What came about."""

    outcomes: Counter[str] = field(default_factory=Counter)
    most_processes: int = 0
    wrong: list[str] = []


def server() -> Server:
    app = Server("dying", mask_errors=True)

    @app.tool(isolate=Isolate(processes=2, reuse=50))
    def end(how: str) -> int:
        faulthandler.disable()  # thousands of stacks on the terminal say nothing
        if how == "signal":
            os.kill(os.getpid(), random.choice([signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL]))
        elif how == "exit":
            os._exit(random.randrange(256))
        elif how == "descriptors":
            os.closerange(0, 1000)
            os._exit(1)
        elif how == "orphan":
            if os.fork() == 0:
                os.setsid()
                time.sleep(300)
            os._exit(1)
        elif how == "hang":
            time.sleep(300)
        return os.getpid()

    return app


WAYS = ("signal", "exit", "descriptors", "orphan", "cancel")
WEIGHTS = (6, 6, 2, 1, 4)


async def kill(count: int, seed: int = 1) -> Report:
    """End processes so many times, some by their call, some by its cancellation."""
    chance = random.Random(seed)
    report = Report()
    ways = iter(chance.choices(WAYS, WEIGHTS, k=count))
    app = server()
    async with Client(app) as client:
        await asyncio.gather(*(_caller(client, ways, report) for _ in range(AT_ONCE)))
        result = await client.call_tool("end", {"how": "not"})
        if result.is_error:
            report.wrong.append(f"the last call failed: {result.text}")
    zombies = [each for each in children() if each.status() == psutil.STATUS_ZOMBIE]
    if zombies:
        report.wrong.append(f"{len(zombies)} zombies are left")
    return report


async def _caller(client: Client, ways: "object", report: Report) -> None:
    for way in ways:  # type: ignore[attr-defined]
        if way == "cancel":
            call = asyncio.ensure_future(client.call_tool("end", {"how": "hang"}))
            await asyncio.wait([call], timeout=0.005)
            call.cancel()
            await asyncio.wait([call])
            report.outcomes["cancelled" if call.cancelled() else "other"] += 1
            continue
        result = await client.call_tool("end", {"how": way})
        report.outcomes[way] += 1
        if not result.is_error:
            report.wrong.append(f"{way} did not end its process: {result.text}")
        alive = (await client.call_tool("end", {"how": "not"})).is_error
        if alive:
            report.wrong.append(f"a call after {way} failed")
        if sum(report.outcomes.values()) % 100 == 0:
            report.most_processes = max(report.most_processes, len(children()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=10_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        before, began = descriptors(), time.monotonic()
        report = asyncio.run(kill(chosen.kills))
        took = time.monotonic() - began
        if files := list(Path(folder).iterdir()):
            report.wrong.append(f"files are left: {files}")
    if left := children():
        report.wrong.append(f"{len(left)} processes are left")
    if descriptors() > before:
        report.wrong.append(f"{descriptors() - before} descriptors are left")
    print(f"{chosen.kills} kills in {took:.0f} s: {dict(report.outcomes)}")
    print(f"most processes at a time: {report.most_processes}")
    for each in report.wrong[:20]:
        print("wrong:", each)
    print("nothing is left" if not report.wrong else f"{len(report.wrong)} things are wrong")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
