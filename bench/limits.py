"""Limits: what counting calls costs, and what is left of a server that gets twice what it can do."""

import sys
from contextlib import ExitStack

from bench.environments import SERVERS
from bench.http_server import serving
from bench.overload import Outcome, Wire, load
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results, WrongAnswer
from bench.stdio import Process, pipelined

SERVER = [sys.executable, str(SERVERS / "mcpearl_limits.py")]
STEPS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)  # of the first guess, on the way to the best load
ALMOST = 0.98  # of the most answers
WIRES: tuple[Wire, ...] = ("modern", "legacy", "tcp", "stdio")
_LATEST = (
    50.0  # milliseconds by which the driver may be late, so that it is not it that is measured
)


def run(results: Results, *, quick: bool) -> None:
    """Measure rate limits on stdio, and shedding on every wire."""
    rounds = 1 if quick else 5
    for number in range(1, rounds + 1):
        say(f"limits: round {number} of {rounds}")
        with results.noting("rate limits"):
            share = rate_of_open(2_000 if quick else 30_000)
            results.add_round("rate_limited", MCPEARL.name, share)
        if number > 3:
            continue
        for wire in WIRES if number == 1 else WIRES[:1]:
            with results.noting(f"shedding, {wire}"):
                shed(results, wire, 1.0 if quick else 3.0)


def shed(results: Results, wire: Wire, seconds: float) -> None:
    """Measure one wire at its best load, at twice and at four times that; the table has modern HTTP."""
    with ExitStack() as stack:
        target: int | list[str] = [*SERVER, "stdio", "shedding"]
        if wire != "stdio":
            options = ("shedding", "tcp") if wire == "tcp" else ("shedding",)
            target = stack.enter_context(serving(SERVER, *options)).port
        best = best_load(wire, target, seconds)
        twice = _honest(load(wire, target, 2 * best.offered, seconds))
        say(f"limits: {wire}: best {best}")
        say(f"limits: {wire}: twice {twice}")
        say(f"limits: {wire}: four times {load(wire, target, 4 * best.offered, seconds)}")
    if wire == "modern":
        goodput = 100 * twice.answered / best.answered
        results.add_round("overload_goodput", MCPEARL.name, goodput)
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


def best_load(wire: Wire, target: int | list[str], seconds: float) -> Outcome:
    """The smallest load at which about as many calls are answered as at any."""
    guess = load(wire, target, 1500, seconds / 2).answered
    tried = [load(wire, target, guess * step, seconds) for step in STEPS]
    most = max(outcome.answered for outcome in tried)
    return next(outcome for outcome in tried if outcome.answered >= ALMOST * most)


def _honest(outcome: Outcome) -> Outcome:
    if outcome.late > _LATEST:
        raise WrongAnswer(f"the driver was late by {outcome.late:.0f} ms: {outcome}")
    return outcome
