"""Calls over HTTP: wrk on every peer's server, and every Python peer's own client on its server.

A peer with several ways to serve is tried in each of them, and measured in its fastest. wrk counts
answers and does not read them, so every request is asked and checked before the clock starts, and the
mean length of what wrk read has to be that of the right answers.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from bench import http_messages as messages
from bench import wrk
from bench.environments import SERVERS, clean_environ
from bench.http_messages import TURNS, Request
from bench.http_probe import Probe
from bench.http_server import echo_command, http_command, serving
from bench.peers import FASTMCP, MCP, MCPEARL, PEERS, PYTHON_PEERS, TS_V1, TS_V2, Peer, interpreter
from bench.progress import say
from bench.results import Results, WrongAnswer

PATIENCE_SECONDS = 180
TOLERANCE = 0.05  # of the mean length of an answer
AT_ONCE = 16
WARM_UP, TRIAL = 1, 1  # seconds

Options = tuple[str, ...]
STREAMING, JSON = (), ("json_response=true",)
SESSIONS: dict[Peer, list[Options]] = {
    MCPEARL: [()],
    MCP: [STREAMING, JSON],
    FASTMCP: [STREAMING, JSON],
    TS_V1: [STREAMING, JSON],
    TS_V2: [],  # it keeps none
}
STATELESS: dict[Peer, list[Options]] = {
    MCP: [("stateless_http=true", *options) for options in (STREAMING, JSON)],
    FASTMCP: [("stateless_http=true", *options) for options in (STREAMING, JSON)],
    TS_V1: [("stateless=true", *options) for options in (STREAMING, JSON)],
    TS_V2: [()],
}


@dataclass(frozen=True)
class Case:
    """One kind of request, asked over and over."""

    metric: str
    title: str
    ways: dict[Peer, list[Options]]
    request: Callable[[str | None, int], Request]
    check: Callable[[int, str, bytes], None]
    in_session: bool = False


def _is_initialized(number: int, kind: str, body: bytes) -> None:
    if b'"protocolVersion":"2025-11-25"' not in body.replace(b'": "', b'":"'):
        raise WrongAnswer(f"initialize was answered with {body[:200]!r}")


_ANY_WAY = {peer: SESSIONS[peer] + STATELESS.get(peer, []) for peer in PEERS}
_MODERN = {peer: SESSIONS[peer] or [()] for peer in PEERS if peer is not TS_V1}
MODERN_CALLS = Case(
    "http_modern",
    "calls of 2026-07-28",
    _MODERN,
    lambda _, number: messages.modern("tools/call", messages.add(number), number, "add"),
    messages.check_sum,
)
CASES = (
    MODERN_CALLS,
    Case(
        "http_session",
        "calls of 2025-11-25",
        _ANY_WAY,
        lambda session, number: messages.in_session(
            session, "tools/call", messages.add(number), number
        ),
        messages.check_sum,
        in_session=True,
    ),
    Case(
        "http_steps",
        "calls of 2026-07-28 that stream",
        _MODERN,
        lambda _, number: messages.modern("tools/call", messages.steps(number), number, "steps"),
        messages.check_steps,
    ),
    Case(
        "http_session_steps",
        "calls of 2025-11-25 that stream",
        _ANY_WAY,
        lambda session, number: messages.in_session(
            session, "tools/call", messages.steps(number), number
        ),
        messages.check_steps,
        in_session=True,
    ),
    Case(
        "http_sessions",
        "new sessions",
        {peer: ways for peer, ways in SESSIONS.items() if ways},
        lambda _, number: messages.initialize(),
        _is_initialized,
    ),
)


def run(results: Results, *, quick: bool) -> None:
    """Measure with wrk and with clients; the rounds take turns between the peers."""
    rounds = 1 if quick else 4
    if wrk.is_there():
        for case in CASES:
            measure_case(results, case, rounds, 1 if quick else 2, tries_ways=not quick)
    else:
        say(f"http: no calls with many connections, since {wrk.MISSING}")
        results.missing.append(f"calls over HTTP with many connections: {wrk.MISSING}")
    for number in range(1, rounds + 1):
        for peer in PYTHON_PEERS:
            say(f"http: own client of {peer.title}, round {number} of {rounds}")
            with results.noting(f"http, {peer.title}"):
                for metric, figure in measure_client(peer, quick).items():
                    results.add_round(metric, peer.name, figure)


# wrk


def measure_case(
    results: Results, case: Case, rounds: int, seconds: int, *, tries_ways: bool
) -> None:
    """One kind of request, on every peer that serves it."""
    chosen: dict[Peer, Options] = {}
    for peer, ways in case.ways.items():
        with results.noting(f"http, {peer.title}"):
            chosen[peer] = fastest(case, peer, ways) if tries_ways else ways[0]
    for number in range(1, rounds + 1):
        for peer, options in chosen.items():
            name = " ".join([peer.title, *options])
            say(f"http: {case.title}, {name}, round {number} of {rounds}")
            with results.noting(f"http, {peer.title}"):
                figure = calls_per_second(case, http_command(peer), options, seconds)
                results.add_round(case.metric, peer.name, figure)
        if case is MODERN_CALLS:
            say(f"http: the bare echo, round {number} of {rounds}")
            results.add_round(case.metric, "echo", echoes_per_second(case, seconds))


def fastest(case: Case, peer: Peer, ways: list[Options]) -> Options:
    """The way to serve in which a peer answers most; ways that do not answer rightly are out."""
    if len(ways) == 1:
        return ways[0]
    figures: dict[Options, float] = {}
    wrong: list[str] = []
    for options in ways:
        try:
            figure = calls_per_second(case, http_command(peer), options, TRIAL)
        except WrongAnswer as error:
            wrong.append(str(error))
            continue
        say(f"http: {case.title}, {' '.join([peer.title, *options])}: {figure:,.0f}/s in a trial")
        figures[options] = figure
    if not figures:
        raise WrongAnswer(f"{case.title}: {wrong[0]}")
    return max(figures, key=lambda options: figures[options])


def calls_per_second(case: Case, command: list[str], options: Options, seconds: int) -> float:
    """One run: a fresh server, every request once with its answer checked, then wrk."""
    with serving(command, *options) as server, Probe(server.port) as probe:
        session = begin(probe) if case.in_session else None
        requests = [case.request(session, number) for number in TURNS]
        sizes = []
        for number, request in zip(TURNS, requests, strict=True):
            response = probe.ask(request)
            case.check(number, response.kind, response.body)
            sizes.append(response.size)
        wrk.load(server.port, requests, WARM_UP)  # to warm up
        count = wrk.load(server.port, requests, seconds)
    expected = sum(sizes) / len(sizes)
    # When wrk stops, a part of one answer has come on each connection.
    allowed = TOLERANCE + wrk.CONNECTIONS / count.requests
    if abs(count.mean_bytes / expected - 1) > allowed:
        raise WrongAnswer(
            f"answers of {count.mean_bytes:.0f} bytes, where right ones have {expected:.0f}"
        )
    return count.per_second


def echoes_per_second(case: Case, seconds: int) -> float:
    """The same requests, given back as they are."""
    with serving(echo_command()) as server:
        requests = [case.request(None, number) for number in TURNS]
        wrk.load(server.port, requests, WARM_UP)
        return wrk.load(server.port, requests, seconds).per_second


def begin(probe: Probe) -> str | None:
    """Begin a session; None of a server that keeps none."""
    session = probe.ask(messages.initialize()).headers.get("mcp-session-id")
    probe.ask(messages.initialized(session))
    return session


# Clients


def measure_client(peer: Peer, quick: bool) -> dict[str, float]:
    """Calls per second of a peer's own client, in the faster of the eras it speaks."""
    calls = 100 if quick else 8_000 if peer is MCPEARL else 1_000
    script = str(SERVERS / "http_client.py")
    with serving(http_command(peer)) as server:
        try:
            done = subprocess.run(
                [interpreter(peer), script, peer.name, server.url, str(calls), str(AT_ONCE)],
                capture_output=True,
                text=True,
                env=clean_environ(),
                check=False,
                timeout=PATIENCE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise WrongAnswer(f"its client did not end within {PATIENCE_SECONDS} s") from None
    if done.returncode:
        raise WrongAnswer((done.stderr.strip() or "no message").splitlines()[-1])
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
