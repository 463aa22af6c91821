"""What receipts cost: the same calls with and without them, in turns, on stdio and over HTTP.

The records are written by a process of their own, so a machine with one processor pays more.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench import http_messages as messages
from bench import wrk
from bench.environments import SERVERS
from bench.http_server import serving
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results
from bench.stdio import PATIENCE_SECONDS, Process, pipelined
from bench.turns import shares

SERVER = [sys.executable, str(SERVERS / "mcpearl_receipts.py")]
MODES = ("on", "durable")


def run(results: Results, *, quick: bool) -> None:
    """Measure calls with receipts, in percent of calls without."""
    rounds = 1 if quick else 5
    for number in range(1, rounds + 1):
        say(f"receipts: round {number} of {rounds}")
        with results.noting("receipts on stdio"):
            found, taken = shares_on_stdio(1_000 if quick else 2_000, 9)
            for mode, share in found.items():
                results.add_round(f"receipts_stdio_{mode}", MCPEARL.name, share, taken)
        if not wrk.is_there():
            results.missing.append(f"receipts over HTTP: {wrk.MISSING}")
            continue
        with results.noting("receipts over HTTP"):
            found, taken = shares_over_http(3 if quick else 7)
            for mode, share in found.items():
                results.add_round(f"receipts_http_{mode}", MCPEARL.name, share, taken)


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


def shares_on_stdio(calls: int, turns: int) -> tuple[dict[str, float], float]:
    """Pipelined calls with receipts, in percent of those without."""
    with log_folder() as folder, ExitStack() as stack:
        measures = {}
        for mode in ("off", *MODES):
            process = Process([*SERVER, "stdio", mode, str(Path(folder) / mode)])
            stack.callback(process.close)
            measures[mode] = partial(pipelined, process, "add", calls)
        return shares("receipts on stdio", "off", measures, turns)


def shares_over_http(turns: int) -> tuple[dict[str, float], float]:
    """Calls per second over HTTP with receipts, in percent of those without."""
    requests = [
        messages.modern("tools/call", messages.add(number), number, "add") for number in range(8)
    ]

    def rate(port: int) -> float:
        return wrk.load(port, requests, 1).per_second

    with log_folder() as folder, ExitStack() as stack:
        measures = {}
        for mode in ("off", *MODES):
            server = serving(SERVER, mode, str(Path(folder) / mode))
            measures[mode] = partial(rate, stack.enter_context(server).port)
        return shares("receipts over HTTP", "off", measures, turns)
