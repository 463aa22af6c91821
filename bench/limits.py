"""Limits: what counting calls costs, and what is left of a server that gets twice what it can do.

What is compared takes turns, in pieces of a second or less, and the median of the pairs counts: a machine
that is slow for some seconds is so for both sides.
"""

import statistics
import subprocess
import sys
from contextlib import ExitStack

import msgspec

from bench import names
from bench.environments import SERVERS
from bench.http_server import serving
from bench.overload import Outcome, Wire, load
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results, WrongAnswer
from bench.stdio import Process, pipelined

SERVER = [sys.executable, str(SERVERS / "mcpearl_limits.py")]
PAIRS = 5  # of servers with and without a rate: two that are the same differ by 4 %
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
            pairs = [rate_of_open(*((500, 10) if quick else (2_000, 10))) for _ in range(PAIRS)]
            share = statistics.median(pairs)
            results.add_round("rate_limited", MCPEARL.name, share)
        count_names(results, 100_000 if quick else 1_000_000)
        if number > 3:
            continue
        for wire in WIRES if number == 1 else WIRES[:1]:
            with results.noting(f"shedding, {wire}"):
                shed(results, wire, 0.6 if quick else 2.0, 3 if wire == "modern" else 1)


def shed(results: Results, wire: Wire, seconds: float, pairs: int) -> None:
    """Measure one wire at its best load, at twice and at four times that; the table has modern HTTP.

    The load that is best is looked for first. How much is answered then is measured anew, in turns with
    twice the load: the same machine answers 10 % more or less a few seconds later.
    """
    with ExitStack() as stack:
        target: int | list[str] = [*SERVER, "stdio", "shedding"]
        if wire != "stdio":
            options = ("shedding", "tcp") if wire == "tcp" else ("shedding",)
            target = stack.enter_context(serving(SERVER, *options)).port
        offered = best_load(wire, target, seconds)
        shares: list[tuple[float, float]] = []
        for _ in range(pairs):
            best = load(wire, target, offered, seconds)
            twice = _honest(load(wire, target, 2 * offered, seconds))
            say(f"limits: {wire}: best {best}")
            say(f"limits: {wire}: twice {twice}")
            shares.append((100 * twice.answered / best.answered, twice.p99 / best.p99))
        say(f"limits: {wire}: four times {load(wire, target, 4 * offered, seconds)}")
    if wire == "modern":
        goodput, p99 = map(statistics.median, zip(*shares, strict=True))
        results.add_round("overload_goodput", MCPEARL.name, goodput)
        results.add_round("overload_p99", MCPEARL.name, p99)


def count_names(results: Results, count: int) -> None:
    """Measure a registry with many names, and a dictionary with the same."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.names", str(count)], stdout=subprocess.PIPE, check=True
    )
    figures = msgspec.json.decode(done.stdout, type=names.Figures)
    results.add_round("names_lookup", MCPEARL.name, figures.lookup)
    results.add_round("names_lookup", "dict", figures.dictionary)
    results.add_round("names_size", MCPEARL.name, figures.size)


def rate_of_open(calls: int, parts: int) -> float:
    """Calls on stdio with a rate limit, in percent of calls without."""
    processes = [Process([*SERVER, "stdio", limit]) for limit in ("open", "rate")]
    try:
        for process in processes:
            pipelined(process, "add", 4 * calls)  # to warm up
        shares: list[float] = []
        for part in range(parts):
            turns = processes if part % 2 else processes[::-1]
            rates = {process: pipelined(process, "add", calls) for process in turns}
            shares.append(100 * rates[processes[1]] / rates[processes[0]])
    finally:
        for process in processes:
            process.close()
    return statistics.median(shares)


def best_load(wire: Wire, target: int | list[str], seconds: float) -> float:
    """Return the smallest load at which about as many calls are answered as at any."""
    guess = load(wire, target, 1500, seconds / 2).answered
    tried = [load(wire, target, guess * step, seconds) for step in STEPS]
    most = max(outcome.answered for outcome in tried)
    return next(outcome.offered for outcome in tried if outcome.answered >= ALMOST * most)


def _honest(outcome: Outcome) -> Outcome:
    if outcome.late > _LATEST:
        raise WrongAnswer(f"the driver was late by {outcome.late:.0f} ms: {outcome}")
    return outcome
