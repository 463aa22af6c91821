"""Calls over HTTP: wrk on every peer's server, and every Python peer's own client on its server.

A peer with several ways to serve is tried in each of them, and measured in its fastest. wrk counts
answers and does not read them, so every request is sent and its answer checked before the clock starts,
and the mean length of what wrk read has to be that of the right answers.
"""

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import mean

from bench import http_messages as messages
from bench import wrk
from bench.environments import SERVERS, clean_environ
from bench.http_messages import TURNS, Request
from bench.http_probe import Probe
from bench.http_server import HttpServer, http_command, serving
from bench.peers import (
    ECHO,
    FASTMCP,
    FLOOR,
    MCP,
    MCPEARL,
    PEERS,
    PYTHON_PEERS,
    TS_V1,
    TS_V2,
    Peer,
    in_turn,
    interpreter,
)
from bench.progress import say
from bench.results import Results, WrongAnswer
from bench.steal import host

PATIENCE_SECONDS = 180
SLOWEST = 60  # seconds that a slow server is measured for
TOLERANCE = 0.05  # of the mean length of an answer
AT_ONCE = 16
WARM_UP, TRIAL = 1, 1  # seconds
ROUNDS = 3
FLOOR_ROUNDS = 7  # where a share of the floor is asked for, which differs by little

Options = tuple[str, ...]
STREAMING, JSON = (), ("json_response=true",)
SESSIONS: dict[Peer, list[Options]] = {
    MCPEARL: [()],
    MCP: [STREAMING, JSON],
    FASTMCP: [STREAMING, JSON],
    TS_V1: [STREAMING, JSON],
    TS_V2: [],  # it has none
}
STATELESS: dict[Peer, list[Options]] = {
    MCP: [("stateless_http=true", *options) for options in (STREAMING, JSON)],
    FASTMCP: [("stateless_http=true", *options) for options in (STREAMING, JSON)],
    TS_V1: [("stateless=true", *options) for options in (STREAMING, JSON)],
    TS_V2: [()],
}


@dataclass(frozen=True)
class Case:
    """One kind of request, sent over and over."""

    metric: str
    title: str
    ways: dict[Peer, list[Options]]
    request: Callable[[str | None, int], Request]
    check: Callable[[int, str, bytes], None]
    in_session: bool = False


def beside(
    floors: dict[Peer, list[Options]], ways: dict[Peer, list[Options]]
) -> dict[Peer, list[Options]]:
    """The ways of all peers with the floors next to mcpearl, to be measured at the same time."""
    return {MCPEARL: ways[MCPEARL]} | floors | ways


def _is_initialized(number: int, kind: str, body: bytes) -> None:
    if b'"protocolVersion":"2025-11-25"' not in body.replace(b'": "', b'":"'):
        raise WrongAnswer(f"initialize was answered with {body[:200]!r}")


_FLOOR: dict[Peer, list[Options]] = {FLOOR: [()]}
_FLOORS: dict[Peer, list[Options]] = {FLOOR: [()], ECHO: [()]}
_CLOSE = (MCPEARL, FLOOR, ECHO)
_ANY_WAY = {peer: SESSIONS[peer] + STATELESS.get(peer, []) for peer in PEERS}
_MODERN = {peer: SESSIONS[peer] or [()] for peer in PEERS if peer is not TS_V1}
MODERN_CALLS = Case(
    "http_modern",
    "calls of 2026-07-28",
    beside(_FLOORS, _MODERN),
    lambda _, number: messages.modern("tools/call", messages.add(number), number, "add"),
    messages.check_sum,
)
CASES = (
    MODERN_CALLS,
    Case(
        "http_session",
        "calls of 2025-11-25",
        beside(_FLOOR, _ANY_WAY),
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
    """Measure with wrk and with clients; each round goes over all peers."""
    rounds, seconds = (1, 1) if quick else (ROUNDS, 2)
    if wrk.is_there():
        for case in CASES:
            repeats = FLOOR_ROUNDS if FLOOR in case.ways and not quick else rounds
            measure_case(results, case, repeats, seconds, tries_ways=not quick)
    else:
        say(f"http: no calls with many connections: {wrk.MISSING}")
        results.missing.append(f"calls over HTTP with many connections: {wrk.MISSING}")
    for number in range(1, rounds + 1):
        for peer in in_turn(PYTHON_PEERS, number):
            say(f"http: own client of {peer.title}, round {number} of {rounds}")
            with results.noting(f"http, {peer.title}", ours=peer is MCPEARL):
                measure_client(results, peer, quick)


# wrk


def measure_case(
    results: Results, case: Case, rounds: int, seconds: int, *, tries_ways: bool
) -> None:
    """Measure one kind of request on every peer that serves it."""
    chosen: dict[Peer, Options] = {}
    for peer, ways in case.ways.items():
        with results.noting(f"http, {peer.title}", ours=peer is MCPEARL):
            chosen[peer] = fastest(case, peer, ways) if tries_ways else ways[0]
    for number in range(1, rounds + 1):
        for group in together(in_turn(chosen, number)):
            name = " and ".join(" ".join([peer.title, *chosen[peer]]) for peer in group)
            say(f"http: {case.title}, {name}, round {number} of {rounds}")
            with results.noting(f"http, {name}", ours=MCPEARL in group):
                ways = {peer: chosen[peer] for peer in group}
                figures, taken = rates(case, ways, seconds)
                for peer, figure in figures.items():
                    results.add_round(case.metric, peer.name, figure, taken)


def together(peers: list[Peer]) -> list[list[Peer]]:
    """Peers that are measured at the same time: mcpearl and its floors, which differ by little."""
    groups: list[list[Peer]] = []
    for peer in peers:
        if groups and peer in _CLOSE and groups[-1][0] in _CLOSE:
            groups[-1].append(peer)
        else:
            groups.append([peer])
    return groups


def rates(case: Case, ways: dict[Peer, Options], seconds: int) -> tuple[dict[Peer, float], float]:
    """The rates of servers that run at the same time, in turns of a second, and what the host took."""
    with ExitStack() as stack:
        loads = {
            peer: stack.enter_context(
                loading(case, http_command(peer), options, answers=peer is not ECHO)
            )
            for peer, options in ways.items()
        }

        def turns() -> dict[Peer, float]:
            if len(loads) == 1:
                return {peer: load(seconds) for peer, load in loads.items()}
            found: dict[Peer, list[float]] = {peer: [] for peer in loads}
            order = list(loads)
            for _ in range(seconds):
                for peer in order:
                    found[peer].append(loads[peer](1))
                order.reverse()
            return {peer: mean(each) for peer, each in found.items()}

        return host.undisturbed(f"http: {case.title}", turns)


def fastest(case: Case, peer: Peer, ways: list[Options]) -> Options:
    """The way to serve in which a peer answers most, among those with right answers."""
    if len(ways) == 1:
        return ways[0]
    figures: dict[Options, float] = {}
    wrong: list[WrongAnswer] = []
    for options in ways:
        try:
            figure = calls_per_second(case, http_command(peer), options, TRIAL)
        except WrongAnswer as error:
            wrong.append(error)
            continue
        say(f"http: {case.title}, {' '.join([peer.title, *options])}: {figure:,.0f}/s in a trial")
        figures[options] = figure
    if not figures:
        raise type(wrong[0])(f"{case.title}: {wrong[0]}")
    return max(figures, key=lambda options: figures[options])


def calls_per_second(case: Case, command: list[str], options: Options, seconds: int) -> float:
    """One run: a new server, every request once with its answer checked, then wrk."""
    with loading(case, command, options) as load:
        return load(seconds)


@contextmanager
def loading(
    case: Case, command: list[str], options: Options, *, answers: bool = True
) -> Iterator[Callable[[int], float]]:
    """Run a server, tried and warmed up; yield what loads it for some seconds and returns its rate.

    A server so slow that its connections would not all be answered in that time gets more. One that
    returns its requests has no `answers` to check.
    """
    with serving(command, *options) as server, Probe(server.port) as probe:
        session = begin(probe) if case.in_session and answers else None
        requests = [case.request(session, number) for number in TURNS]
        sizes, lasted = [], 0.0
        for number, request in zip(TURNS, requests, strict=True):
            began = time.perf_counter()
            response = probe.ask(request)
            lasted = time.perf_counter() - began
            if answers:
                case.check(number, response.kind, response.body)
            sizes.append(response.size)
        expected = sum(sizes) / len(sizes)
        needed = min(math.ceil(2 * wrk.CONNECTIONS * lasted), SLOWEST)

        def load(seconds: int) -> float:
            count = _load(server.port, requests, max(seconds, needed))
            # When wrk stops, each connection has received a part of one answer.
            allowed = TOLERANCE + wrk.CONNECTIONS / count.requests
            if abs(count.mean_bytes / expected - 1) > allowed:
                raise WrongAnswer(
                    f"the answers have {count.mean_bytes:.0f} bytes on average; right ones have "
                    f"{expected:.0f}"
                )
            return count.per_second

        _load(server.port, requests, max(WARM_UP, needed))
        yield load


def _load(port: int, requests: list[Request], seconds: int) -> wrk.Count:
    """Send the requests for so many seconds, or for as many as a slow server needs."""
    while True:
        try:
            return wrk.load(port, requests, seconds)
        except wrk.TooSlow:
            if seconds >= SLOWEST:
                raise
            seconds = min(4 * seconds, SLOWEST)


def begin(probe: Probe) -> str | None:
    """Begin a session and return its id, or None if the server has no sessions."""
    session = probe.ask(messages.initialize()).headers.get("mcp-session-id")
    probe.ask(messages.initialized(session))
    return session


# Clients


def measure_client(results: Results, peer: Peer, quick: bool) -> None:
    """A peer's own client on its own server; the floor of ours is measured on the same server."""
    calls = 100 if quick else 8_000 if peer is MCPEARL else 1_000
    with serving(http_command(peer)) as server:

        def measure() -> tuple[dict[str, float], float | None]:
            figures = client_calls_per_second(peer, server, calls)
            return figures, socket_calls_per_second(server, calls) if peer is MCPEARL else None

        what = f"http: own client of {peer.title}"
        (figures, floor), taken = host.undisturbed(what, measure)
        for metric, figure in figures.items():
            results.add_round(metric, peer.name, figure, taken)
        if floor is not None:
            results.add_round("http_client_single", FLOOR.name, floor, taken)


def client_calls_per_second(peer: Peer, server: HttpServer, calls: int) -> dict[str, float]:
    """One at a time and several at once, in the faster of the eras the client speaks."""
    arguments = [peer.name, server.url, str(calls), str(AT_ONCE)]
    output = _run_client([interpreter(peer), str(SERVERS / "http_client.py"), *arguments])
    figures: dict[str, float] = json.loads(output)
    return figures


def socket_calls_per_second(server: HttpServer, calls: int) -> float:
    """One at a time, from a socket that only sends the bytes of a request and reads an answer."""
    number = TURNS[0]
    request = MODERN_CALLS.request(None, number).encode(f"127.0.0.1:{server.port}")
    script = str(SERVERS / "floor_client.py")
    output = _run_client([interpreter(FLOOR), script, str(server.port), str(calls)], request)
    answered = json.loads(output)
    MODERN_CALLS.check(number, "application/json", answered["body"].encode())
    return float(answered["rate"])


def _run_client(client: list[str], given: bytes = b"") -> bytes:
    try:
        done = subprocess.run(
            client,
            input=given,
            capture_output=True,
            env=clean_environ(),
            check=False,
            timeout=PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise WrongAnswer(f"its client did not end within {PATIENCE_SECONDS} s") from None
    if done.returncode:
        raise WrongAnswer((done.stderr.decode().strip() or "no message").splitlines()[-1])
    return done.stdout
