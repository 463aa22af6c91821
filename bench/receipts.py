"""What receipts cost: the same calls with and without them, in turns, on stdio and over HTTP.

The records are written by a process of their own, so a machine with one processor pays more.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import wrk
from bench.environments import SERVERS
from bench.http import MODERN_CALLS, calls_per_second
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results
from bench.stdio import PATIENCE_SECONDS, Process, pipelined

SERVER = [sys.executable, str(SERVERS / "mcpearl_receipts.py")]
MODES = ("on", "durable")


def run(results: Results, *, quick: bool) -> None:
    """Measure calls with receipts, in percent of calls without."""
    rounds = 1 if quick else 5
    for number in range(1, rounds + 1):
        say(f"receipts: round {number} of {rounds}")
        with results.noting("receipts on stdio"):
            for mode, share in shares_on_stdio(2_000 if quick else 20_000).items():
                results.add_round(f"receipts_stdio_{mode}", MCPEARL.name, share)
        if not wrk.is_there():
            results.missing.append(f"receipts over HTTP: {wrk.MISSING}")
            continue
        with results.noting("receipts over HTTP"):
            for mode, share in shares_over_http(1 if quick else 3).items():
                results.add_round(f"receipts_http_{mode}", MCPEARL.name, share)


@contextmanager
def log_folder() -> Iterator[str]:
    """Make a folder for logs, and remove it when they are written to no more.

    Servers are killed at the end; what they have handed over is still written then.
    """
    folder = tempfile.mkdtemp()
    yield folder
    until = time.monotonic() + PATIENCE_SECONDS
    while Path(folder).exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.2)


def shares_on_stdio(calls: int) -> dict[str, float]:
    """Pipelined calls with receipts, in percent of those without; each server in its turn."""
    spent = dict.fromkeys(("off", *MODES), 0.0)
    with log_folder() as folder:
        processes = {
            mode: Process([*SERVER, "stdio", mode, str(Path(folder) / mode)]) for mode in spent
        }
        try:
            for part in range(6):
                for mode, process in processes.items():
                    rate = pipelined(process, "add", calls // 5)
                    spent[mode] += 0 if part == 0 else 1 / rate
        finally:
            for process in processes.values():
                process.close()
    return {mode: 100 * spent["off"] / spent[mode] for mode in MODES}


def shares_over_http(seconds: int) -> dict[str, float]:
    """Calls per second over HTTP with receipts, in percent of those without."""
    rates = {}
    with log_folder() as folder:
        for mode in ("off", *MODES):
            options = (mode, str(Path(folder) / mode))
            rates[mode] = calls_per_second(MODERN_CALLS, SERVER, options, seconds)
    return {mode: 100 * rates[mode] / rates["off"] for mode in MODES}
