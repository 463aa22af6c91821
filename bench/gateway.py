"""The gateway in front of one server, beside FastMCP's proxy and mcp-proxy in front of the same.

Every row sends the modern calls of `http`, from wrk, with 16 connections; mcp-proxy, which has sessions
only and serves programs only, gets those of 2025-11-25. Shares are of mcpearl's own HTTP server in the
same round. What is added to one call stands beside what a process adds that only passes bytes on; both
are timed with processors that are kept awake (see `awake`). The start is that of a gateway with twenty
servers, until one list has all tools. A client session is one of 2025-11-25 that has made a call.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from bench.awake import awake
from bench.environments import SERVERS, clean_environ, python_peer
from bench.http import CASES, MODERN_CALLS, begin, calls_per_second
from bench.http_messages import TURNS, modern
from bench.http_probe import Probe
from bench.http_server import HttpServer, http_command, serving
from bench.peers import FASTMCP, FLOOR, MCP_PROXY, MCPEARL
from bench.progress import say
from bench.results import NoAnswer, Results

OWN = MCPEARL.name
UPSTREAMS = 20
SESSION_CALLS = next(case for case in CASES if case.in_session)
WARM_SESSIONS = 200  # before memory is read


def run(results: Results, *, quick: bool) -> None:
    """Measure calls through a gateway, what it adds to one, how it starts, and its memory."""
    rounds, seconds = (1, 1) if quick else (3, 3)
    for number in range(1, rounds + 1):
        say(f"gateway: round {number} of {rounds}")
        with results.noting("gateway, mcpearl"):
            measure(results, seconds, 200 if quick else 2000)
        with results.noting("gateway, FastMCP", ours=False):
            measure_fastmcp(results, seconds)
        with results.noting("gateway, mcp-proxy", ours=False):
            command = mcp_proxy()
            rate = calls_per_second(SESSION_CALLS, command, (), seconds)
            results.add_round("gateway_stdio", MCP_PROXY.name, rate)
        with results.noting("gateway with many upstreams"):
            measure_start(results)
        with results.noting("FastMCP with many upstreams", ours=False):
            began = time.perf_counter()
            with listing(fastmcp("many"), UPSTREAMS):
                taken = time.perf_counter() - began
            results.add_round("gateway_start", FASTMCP.name, taken * 1000)
        with results.noting("client sessions of the gateway"):
            kilobytes = session_kilobytes(1000 if quick else 2000)
            results.add_round("gateway_session", OWN, kilobytes)
        with results.noting("mounting in a process"):
            results.add_round("mount_added", OWN, mount_microseconds(50 if quick else 200))


def own(*options: str) -> list[str]:
    """The command of our gateway, up to the port."""
    return [sys.executable, str(SERVERS / "mcpearl_gateway.py"), *options]


def fastmcp(*options: str) -> list[str]:
    """The command of FastMCP's proxy, up to the port."""
    return [str(python_peer("fastmcp")), str(SERVERS / "fastmcp_gateway.py"), *options]


def mcp_proxy() -> list[str]:
    """The command of mcp-proxy in front of our stdio server, up to the port."""
    script = str(SERVERS / "mcp_proxy_gateway.py")
    return [str(python_peer(MCP_PROXY.name)), script, sys.executable]


def measure(results: Results, seconds: int, single: int) -> None:
    """Calls through our gateway, as shares of direct ones."""
    direct = calls_per_second(MODERN_CALLS, http_command(MCPEARL), (), seconds)
    results.add_round("gateway_direct", OWN, direct)
    through = calls_per_second(MODERN_CALLS, own("stdio"), (), seconds)
    results.add_round("gateway_stdio", OWN, through)
    results.add_round("gateway_stdio_share", OWN, 100 * through / direct)
    with serving(http_command(MCPEARL)) as upstream:
        through = calls_per_second(MODERN_CALLS, own(upstream.url), (), seconds)
        results.add_round("gateway_http", OWN, through)
        results.add_round("gateway_http_share", OWN, 100 * through / direct)
        with awake(), serving(own(upstream.url)) as gateway, serving(relay(upstream)) as bare:
            taken = latencies((upstream, gateway, bare), single)
            results.add_round("gateway_added", OWN, (taken[1] - taken[0]) * 1e6)
            results.add_round("gateway_added", FLOOR.name, (taken[2] - taken[0]) * 1e6)


def measure_fastmcp(results: Results, seconds: int) -> None:
    """Calls through FastMCP's proxy, to the same upstreams."""
    name = FASTMCP.name
    through = calls_per_second(MODERN_CALLS, fastmcp("stdio"), (), seconds)
    results.add_round("gateway_stdio", name, through)
    with serving(http_command(MCPEARL)) as upstream:
        through = calls_per_second(MODERN_CALLS, fastmcp(upstream.url), (), seconds)
        results.add_round("gateway_http", name, through)


def measure_start(results: Results) -> None:
    """From the start of our gateway to a list of the tools of twenty servers, and its memory."""
    began = time.perf_counter()
    with listing(own("many"), UPSTREAMS) as server:
        results.add_round("gateway_start", OWN, (time.perf_counter() - began) * 1000)
        with listing(own("one"), 1) as small:
            more = (server.rss - small.rss) / (UPSTREAMS - 1) / 1000
        results.add_round("gateway_upstream", OWN, more)


def mount_microseconds(turns: int) -> float:
    """What mounting a server in another one of the same process adds to a call."""
    script = [sys.executable, str(SERVERS / "mcpearl_mounted.py"), str(turns)]
    done = subprocess.run(script, capture_output=True, text=True, env=clean_environ())
    if done.returncode:
        raise NoAnswer(done.stderr.strip().splitlines()[-1])
    return float(done.stdout)


@contextmanager
def listing(command: list[str], upstreams: int) -> Iterator[HttpServer]:
    """Run a gateway until it has listed the tools of all its upstreams."""
    with serving(command) as server, Probe(server.port) as probe:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            body = probe.ask(modern("tools/list", {}, 1)).body
            if body.count(b"add_sync") >= upstreams:
                yield server
                return
            time.sleep(0.01)
    raise NoAnswer("the list was never whole")


def session_kilobytes(count: int) -> float:
    """Resident memory of the gateway for each client session."""
    with serving(own("stdio")) as server, Probe(server.port) as probe:
        for number in range(count + WARM_SESSIONS):
            if number == WARM_SESSIONS:
                before = server.rss
            request = SESSION_CALLS.request(begin(probe), TURNS[0])
            response = probe.ask(request)
            SESSION_CALLS.check(TURNS[0], response.kind, response.body)
        return (server.rss - before) / count / 1000


def relay(upstream: HttpServer) -> list[str]:
    """The command of a process that passes bytes on to a server and does nothing else, up to the port."""
    return [sys.executable, str(SERVERS / "floor_relay.py"), str(upstream.port)]


def latencies(ways: Sequence[HttpServer], count: int) -> list[float]:
    """Return the seconds that one call takes on each way, in the median.

    Calls alternate between the ways: all of them meet the machine in the same state.
    """
    times: list[list[float]] = [[] for _ in ways]
    with ExitStack() as stack:
        probes = [stack.enter_context(Probe(way.port)) for way in ways]
        for turn in range(count):
            number = TURNS[turn % len(TURNS)]
            request = MODERN_CALLS.request(None, number)
            for probe, taken in zip(probes, times, strict=True):
                began = time.perf_counter()
                response = probe.ask(request)
                taken.append(time.perf_counter() - began)
                MODERN_CALLS.check(number, response.kind, response.body)
    return [median(each) for each in times]
