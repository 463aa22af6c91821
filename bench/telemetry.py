"""Telemetry: what metrics, traces and the access log cost, of everything off, on stdio and over HTTP."""

import sys
import time
import urllib.request

from bench import http_messages as messages
from bench import wrk
from bench.environments import SERVERS
from bench.http_server import serving
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results
from bench.stdio import Process, pipelined

SERVER = [sys.executable, str(SERVERS / "mcpearl_telemetry.py")]
ON_STDIO = ("metrics", "metrics+traces")
OVER_HTTP = ("metrics", "metrics+traces", "access")
NAMES = {"metrics": "metrics", "metrics+traces": "traces", "access": "access_log"}
MANY = 10_000  # series of one page


def run(results: Results, *, quick: bool) -> None:
    """Measure each kind of telemetry beside a server without any, in turn."""
    rounds = 1 if quick else 5
    for number in range(1, rounds + 1):
        say(f"telemetry: round {number} of {rounds}")
        for kind in ON_STDIO:
            with results.noting(f"{kind} on stdio"):
                share = on_stdio(kind, 2_000 if quick else 30_000)
                results.add_round(f"{NAMES[kind]}_stdio", MCPEARL.name, share)
        for kind in OVER_HTTP if wrk.is_there() else ():
            with results.noting(f"{kind} over HTTP"):
                share = over_http(kind, 1)
                results.add_round(f"{NAMES[kind]}_http", MCPEARL.name, share)
        with results.noting("a page of metrics"):
            results.add_round("metrics_page", MCPEARL.name, page())
    if not wrk.is_there():
        results.missing.append(wrk.MISSING)


def on_stdio(kind: str, calls: int) -> float:
    """Calls on stdio with telemetry, in percent of calls without."""
    spent = {"off": 0.0, kind: 0.0}
    processes = {each: Process([*SERVER, "stdio", each]) for each in spent}
    try:
        for part in range(11):
            for each, process in processes.items():
                rate = pipelined(process, "add", calls // 10)
                spent[each] += 0 if part == 0 else 1 / rate
    finally:
        for process in processes.values():
            process.close()
    return 100 * spent["off"] / spent[kind]


def over_http(kind: str, seconds: int) -> float:
    """The same over HTTP."""
    requests = [
        messages.modern("tools/call", messages.add(number), number, "add") for number in range(8)
    ]
    answered = {"off": 0.0, kind: 0.0}
    with serving(SERVER, "off") as off, serving(SERVER, kind) as on:
        ports = {"off": off.port, kind: on.port}
        for part in range(4):
            for each, port in ports.items():
                count = wrk.load(port, requests, seconds)
                answered[each] += 0 if part == 0 else count.per_second
    return 100 * answered[kind] / answered["off"]


def page() -> float:
    """Milliseconds until a page with many series is there, beside nothing else."""
    with serving(SERVER, "metrics", "many") as server:
        address = f"http://127.0.0.1:{server.port}/metrics"
        lines = urllib.request.urlopen(address).read().count(b"\n")
        assert lines >= MANY, lines
        began = time.perf_counter()
        urllib.request.urlopen(address).read()
        return 1000 * (time.perf_counter() - began)
