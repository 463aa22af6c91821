"""Telemetry: what metrics, traces and the access log cost, of everything off, on stdio and over HTTP.

All of it is work of the server's own process, so calls are counted for each second of its processor time.
"""

import sys
import time
import urllib.request
from contextlib import ExitStack
from functools import partial

from bench import http_messages as messages
from bench import wrk
from bench.environments import SERVERS
from bench.http_server import serving
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results
from bench.stdio import Process, pipelined
from bench.turns import per_processor_second, shares

SERVER = [sys.executable, str(SERVERS / "mcpearl_telemetry.py")]
ON_STDIO = ("metrics", "metrics+traces")
OVER_HTTP = ("metrics", "metrics+traces", "access")
NAMES = {"metrics": "metrics", "metrics+traces": "traces", "access": "access_log"}
MANY = 10_000  # series of one page


def run(results: Results, *, quick: bool) -> None:
    """Measure each kind of telemetry beside a server without any, in turns."""
    rounds = 1 if quick else 11  # starts of the same server differ more than turns of one
    for number in range(1, rounds + 1):
        say(f"telemetry: round {number} of {rounds}")
        with results.noting("telemetry on stdio"):
            found, taken = on_stdio(1_000 if quick else 2_000, 5)
            for kind, share in found.items():
                results.add_round(f"{NAMES[kind]}_stdio", MCPEARL.name, share, taken)
        if wrk.is_there():
            with results.noting("telemetry over HTTP"):
                found, taken = over_http(3)
                for kind, share in found.items():
                    results.add_round(f"{NAMES[kind]}_http", MCPEARL.name, share, taken)
        with results.noting("a page of metrics"):
            results.add_round("metrics_page", MCPEARL.name, page())
    if not wrk.is_there():
        results.missing.append(wrk.MISSING)


def on_stdio(calls: int, turns: int) -> tuple[dict[str, float], float]:
    """Calls on stdio with each kind of telemetry, in percent of calls without."""
    with ExitStack() as stack:
        measures = {}
        for kind in ("off", *ON_STDIO):
            process = Process([*SERVER, "stdio", kind])
            stack.callback(process.close)
            load = partial(pipelined_calls, process, calls)
            measures[kind] = partial(per_processor_second, process.popen.pid, load)
        return shares("telemetry on stdio", "off", measures, turns)


def pipelined_calls(process: Process, calls: int) -> float:
    """Make calls, and return how many."""
    pipelined(process, "add", calls)
    return calls


def over_http(turns: int) -> tuple[dict[str, float], float]:
    """The same over HTTP, a second for each turn."""
    requests = [
        messages.modern("tools/call", messages.add(number), number, "add") for number in range(8)
    ]

    def load(port: int) -> float:
        return wrk.load(port, requests, 1).requests

    with ExitStack() as stack:
        measures = {}
        for kind in ("off", *OVER_HTTP):
            server = stack.enter_context(serving(SERVER, kind))
            pid = server.process.pid
            measures[kind] = partial(per_processor_second, pid, partial(load, server.port))
        return shares("telemetry over HTTP", "off", measures, turns)


def page() -> float:
    """Milliseconds until a page with many series is there, beside nothing else."""
    with serving(SERVER, "metrics", "many") as server:
        address = f"http://127.0.0.1:{server.port}/metrics"
        lines = urllib.request.urlopen(address).read().count(b"\n")
        assert lines >= MANY, lines
        began = time.perf_counter()
        urllib.request.urlopen(address).read()
        return 1000 * (time.perf_counter() - began)
