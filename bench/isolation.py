"""Isolated tools on stdio, beside the same function in a `ProcessPoolExecutor` and in threads.

One server has all of them, so that a slow moment of the machine hits all alike.
"""

import statistics
import sys
import time

from bench.environments import SERVERS
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results
from bench.stdio import Process, check, pipelined, requests, write

OWN = MCPEARL.name
EXECUTOR = "executor"


def run(results: Results, *, quick: bool) -> None:
    """Measure calls per second, what isolation adds to one call, and processor-bound tools."""
    rounds = 1 if quick else 5
    calls, single, spins = (2_000, 200, 40) if quick else (40_000, 2_000, 400)
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
    plain = median(server, "plain", single)
    results.add_round("isolated_added", OWN, (median(server, "isolated", single) - plain) * 1e6)
    results.add_round(
        "isolated_added", EXECUTOR, (median(server, "executor", single) - plain) * 1e6
    )
    isolated = pipelined(server, "spun_isolated", spins)
    threads = pipelined(server, "spun_threads", spins)
    results.add_round("isolated_processor", OWN, isolated)
    results.add_round("isolated_processor", "threads", threads)


def median(server: Process, tool: str, count: int) -> float:
    """Seconds of one call, in the median."""
    times: list[float] = []
    answers: list[bytes] = []
    for line in requests(tool, count):
        began = time.perf_counter()
        write(server.stdin, line)
        answers += server.read_lines(1)
        times.append(time.perf_counter() - began)
    check(answers, count)
    return statistics.median(times)
