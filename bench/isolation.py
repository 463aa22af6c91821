"""Isolated tools on stdio, beside the same function in a `ProcessPoolExecutor` and in threads.

One server has all of them, so that a slow moment of the machine hits all alike.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from itertools import islice

from bench.environments import SERVERS
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results
from bench.stdio import Process, check, pipelined, requests, write

OWN = MCPEARL.name
EXECUTOR = "executor"
BLOCK = 50  # calls of one tool before the next has its turn


def run(results: Results, *, quick: bool) -> None:
    """Measure calls per second, what isolation adds to one call, and processor-bound tools."""
    rounds = 1 if quick else 5
    calls, single, spins = (2_000, 500, 120) if quick else (40_000, 2_000, 400)
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
    plain, isolated_one, executor = medians(server, ("plain", "isolated", "executor"), single)
    results.add_round("isolated_added", OWN, (isolated_one - plain) * 1e6)
    results.add_round("isolated_added", EXECUTOR, (executor - plain) * 1e6)
    isolated = pipelined(server, "spun_isolated", spins)
    threads = pipelined(server, "spun_threads", spins)
    results.add_round("isolated_processor", OWN, isolated)
    results.add_round("isolated_processor", "threads", threads)


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
