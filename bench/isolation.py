"""Isolated tools on stdio, beside the same function in a `ProcessPoolExecutor` and in threads.

One server has all of them, so that a slow moment of the machine hits all alike.

A processor-bound tool is measured with calls of some 50 ms, in turns with threads. With calls of 10 ms, a
twentieth of the time was that of the server and of this driver, which have no processor of their own
where there are two; what a call costs has rows of its own. Two bare processes that do the same work and
nothing else show what the machine makes of two processors: less than twice one, where they share a core
or are lent to others. Nothing here can be faster than that.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice

from bench.awake import awake
from bench.environments import SERVERS, clean_environ
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results
from bench.stdio import Process, check, pipelined, requests, write

OWN = MCPEARL.name
EXECUTOR = "executor"
THREADS = "threads"
BARE = "bare"
TURNS = 1_000_000  # of the loop of `spun`, in the server and in bare processes
SPINS = 10  # calls of a processor-bound tool before the next has its turn
SPINNING = f"""
import sys
def spun(a, b):
    count = 0
    for number in range({TURNS}):
        count ^= number
    return a + b
for line in sys.stdin.buffer:
    for number in range(int(line)):
        spun(number, number)
    print(flush=True)
"""
BLOCK = 50  # calls of one tool before the next has its turn


def run(results: Results, *, quick: bool) -> None:
    """Measure calls per second, what isolation adds to one call, and processor-bound tools."""
    rounds = 1 if quick else 5
    calls, single, spins = (2_000, 500, 60) if quick else (40_000, 2_000, 120)
    for number in range(1, rounds + 1):
        say(f"isolation: round {number} of {rounds}")
        with results.noting("isolation"):
            server = Process([sys.executable, str(SERVERS / "mcpearl_isolated.py")])
            try:
                measure(results, server, calls, single, spins)
            finally:
                server.close()


def measure(results: Results, server: Process, calls: int, single: int, spins: int) -> None:
    for tool in ("isolated", "isolated_async", "executor"):
        pipelined(server, tool, calls // 20)  # to warm up
    rate = pipelined(server, "isolated", calls)
    results.add_round("isolated_pipelined", OWN, rate)
    results.add_round("isolated_pipelined", EXECUTOR, pipelined(server, "executor", calls // 5))
    results.add_round("isolated_async", OWN, pipelined(server, "isolated_async", calls))
    with awake():
        plain, isolated_one, executor = medians(server, ("plain", "isolated", "executor"), single)
    results.add_round("isolated_added", OWN, (isolated_one - plain) * 1e6)
    results.add_round("isolated_added", EXECUTOR, (executor - plain) * 1e6)
    for name, rate in spinning(server, spins).items():
        results.add_round("isolated_processor", name, rate)


def spinning(server: Process, count: int) -> dict[str, float]:
    """Calls per second of a processor-bound function: isolated, in threads, in bare processes."""
    seconds = dict.fromkeys((OWN, THREADS, BARE), 0.0)
    with Bare() as bare:
        for _ in range(0, count, SPINS):
            seconds[OWN] += SPINS / pipelined(server, "spun_isolated", SPINS)
            seconds[THREADS] += SPINS / pipelined(server, "spun_threads", SPINS)
            seconds[BARE] += bare.spin(SPINS)
    return {name: count / spent for name, spent in seconds.items()}


class Bare:
    """Two processes that compute and do nothing else."""

    def __enter__(self) -> "Bare":
        self._both = [
            subprocess.Popen(
                [sys.executable, "-c", SPINNING],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=clean_environ(),
            )
            for _ in range(2)
        ]
        return self

    def spin(self, count: int) -> float:
        """Have each do its half of the calls; return the seconds until both are through."""
        began = time.perf_counter()
        for each in self._both:
            assert each.stdin is not None
            each.stdin.write(b"%d\n" % (count // 2))
            each.stdin.flush()
        for each in self._both:
            assert each.stdout is not None
            each.stdout.readline()
        return time.perf_counter() - began

    def __exit__(self, *exc: object) -> None:
        for each in self._both:
            with each:
                each.kill()


def medians(server: Process, tools: Sequence[str], count: int) -> list[float]:
    """Seconds of one call of each tool, in the median.

    The tools take turns, a few calls at a time, so that a slow moment of the machine is in all of them.
    """
    times: dict[str, list[float]] = {tool: [] for tool in tools}
    answers: dict[str, list[bytes]] = {tool: [] for tool in tools}
    lines = {tool: iter(requests(tool, count)) for tool in tools}
    for _ in range(0, count, BLOCK):
        for tool in tools:
            for line in islice(lines[tool], BLOCK):
                began = time.perf_counter()
                write(server.stdin, line)
                answers[tool] += server.read_lines(1)
                times[tool].append(time.perf_counter() - began)
    for each in answers.values():
        check(each, count)
    return [statistics.median(times[tool]) for tool in tools]
