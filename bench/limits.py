"""Limits: what counting calls costs, and what is left of a server that gets twice what it can do."""

import sys

from bench.environments import SERVERS
from bench.http_server import HttpServer, serving
from bench.overload import Outcome, load
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results
from bench.stdio import Process, pipelined

SERVER = [sys.executable, str(SERVERS / "mcpearl_limits.py")]
STEPS = (0.7, 0.8, 0.9, 1.0, 1.1)  # of the first guess, on the way to the best load


def run(results: Results, *, quick: bool) -> None:
    """Measure rate limits on stdio and shedding over HTTP."""
    rounds = 1 if quick else 7
    for number in range(1, rounds + 1):
        say(f"limits: round {number} of {rounds}")
        with results.noting("rate limits"):
            share = rate_of_open(2_000 if quick else 30_000)
            results.add_round("rate_limited", MCPEARL.name, share)
        if number > 3:
            continue
        with results.noting("shedding"), serving(SERVER, "shedding") as server:
            seconds = 1.0 if quick else 4.0
            best = best_load(server, seconds)
            twice = load(server, 2 * best.offered, seconds)
            say(f"limits: best {best}, twice {twice}")
            results.add_round(
                "overload_goodput", MCPEARL.name, 100 * twice.answered / best.answered
            )
            results.add_round("overload_p99", MCPEARL.name, twice.p99 / best.p99)


def rate_of_open(calls: int) -> float:
    """Calls on stdio with a rate limit, in percent of calls without."""
    spent = {"open": 0.0, "rate": 0.0}
    processes = {limit: Process([*SERVER, "stdio", limit]) for limit in spent}
    try:
        for part in range(11):
            for limit, process in processes.items():
                rate = pipelined(process, "add", calls // 10)
                spent[limit] += 0 if part == 0 else 1 / rate
    finally:
        for process in processes.values():
            process.close()
    return 100 * spent["open"] / spent["rate"]


def best_load(server: HttpServer, seconds: float) -> Outcome:
    """The load at which the most calls are answered."""
    guess = load(server, 3000, seconds / 4).answered
    return max((load(server, guess * step, seconds) for step in STEPS), key=lambda it: it.answered)
