"""Many machines: what a store for all of them costs, and how soon it is made up for a dead one.

The same server runs with a Redis of its own and without, in turn. Calls in a session land at another
process than the one the session began at. Shares are those of calls in a second of the server's
processor time, which other work on the machine changes little. Servers with and without a store are
measured in many short turns, several of each; the figure is the median of the pairs. Commands are those
that the store counts.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.redis_server import RedisServer, running

from bench import http_messages as messages
from bench import wrk
from bench.environments import SERVERS
from bench.files import allow_files
from bench.http import CASES, MODERN_CALLS, WARM_UP, Case, begin
from bench.http_messages import TURNS
from bench.http_probe import Probe
from bench.http_server import HttpServer, http_command, serving
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results, WrongAnswer
from bench.sessions import ENOUGH, STREAMS, get_streams
from bench.steal import host

_TASKS = [sys.executable, str(SERVERS / "mcpearl_machines.py")]
_SESSION_CALLS = next(case for case in CASES if case.metric == "http_session")
_NEW_SESSIONS = next(case for case in CASES if case.metric == "http_sessions")
_LISTED = "cmdstat_"
_OF_THE_DRIVER = frozenset({"info", "client", "auth", "hello"})
PATIENCE_SECONDS = 60
_ROOM = "max_sessions=10000000"  # for every session that begins in all turns
SETS = 5  # of servers: two that are the same differ by up to 4 %, as memory happens to lie
PAIRS = 4  # of turns with each set, one without a store and one with it
TURN_SECONDS = 1
_OURS = "io.modelcontextprotocol/"
_TAKES_TASKS: dict[str, object] = {
    f"{_OURS}clientCapabilities": {"extensions": {f"{_OURS}tasks": {}}}
}


def run(results: Results, *, quick: bool) -> None:
    """Measure calls, sessions and streams with a store and without, and a failover."""
    if not wrk.is_there():
        results.missing.append(f"calls with a store: {wrk.MISSING}")
        return
    for number in range(1, (1 if quick else SETS) + 1):
        say(f"machines: calls with a store and without, servers {number}")
        with results.noting("calls with a store"):
            calls_and_sessions(results, PAIRS)
    streams = min(STREAMS // (20 if quick else 1), allow_files())
    for number in range(1, (1 if quick else 3) + 1):
        say(f"machines: {streams:,} streams on four workers, round {number}")
        with results.noting("streams of four workers"):
            results.add_round("store_notified", MCPEARL.name, notify(streams))
    say("machines: a worker with a task dies")
    with results.noting("a task that is taken over"):
        results.add_round("store_failover", MCPEARL.name, failover())


@contextmanager
def _machine(store: RedisServer | None, *options: str) -> Iterator[HttpServer]:
    added = {} if store is None else {"MCPEARL_STORE": store.url}
    with serving(http_command(MCPEARL), *options, added=added) as server:
        yield server


def calls_and_sessions(results: Results, pairs: int) -> None:
    """Compare servers with a store and without, in many short turns of the one and the other."""
    with (
        running("redis") as store,
        _machine(None, _ROOM) as alone,
        _machine(store, _ROOM) as first,
        _machine(store, _ROOM) as other,
    ):
        for metric, case in (
            ("store_modern", MODERN_CALLS),
            ("store_session", _SESSION_CALLS),
            ("store_sessions", _NEW_SESSIONS),
        ):
            plain = Load(_requests(case, alone, alone), alone)
            stored = Load(_requests(case, first, other), other)
            before, order = _commands(store), [plain, stored]
            for _ in range(pairs):
                pair = partial(_rates, tuple(order))
                rates, taken = host.undisturbed(f"machines: {case.title}", pair)
                share = 100 * rates[stored] / rates[plain]
                results.add_round(metric, MCPEARL.name, share, taken)
                order.reverse()
            if case is _SESSION_CALLS:
                sent = (_commands(store) - before) / stored.count
                results.add_round("store_commands", MCPEARL.name, sent)


def _requests(case: Case, first: HttpServer, other: HttpServer) -> list[messages.Request]:
    """Return the requests of a case, tried and warmed up; a session begins at the first server."""
    with Probe(first.port) as beginning, Probe(other.port) as probe:
        session = begin(beginning) if case.in_session else None
        requests = [case.request(session, number) for number in TURNS]
        for number, request in zip(TURNS, requests, strict=True):
            response = probe.ask(request)
            case.check(number, response.kind, response.body)
    wrk.load(other.port, requests, WARM_UP)
    return requests


@dataclass(eq=False)
class Load:
    """Requests to a server, over and over."""

    requests: list[messages.Request]
    server: HttpServer
    count: int = 0
    """How many were sent so far."""

    def rate(self) -> float:
        """Requests in a second of the processor time of the server."""
        before = _processor_seconds(self.server)
        count = wrk.load(self.server.port, self.requests, TURN_SECONDS).requests
        self.count += count
        return count / (_processor_seconds(self.server) - before)


def _rates(loads: tuple[Load, ...]) -> dict[Load, float]:
    return {load: load.rate() for load in loads}


def _processor_seconds(server: HttpServer) -> float:
    """Return what all threads of a server have spent; the system's own count has steps of 10 ms."""
    threads = Path(f"/proc/{server.process.pid}/task")
    if not threads.exists():
        spent = server.process.cpu_times()
        return float(spent.user + spent.system)
    found = (each / "schedstat" for each in threads.iterdir())
    return sum(int(each.read_text().split()[0]) for each in found) / 1e9


def _commands(store: RedisServer) -> int:
    """Count the commands that the store has carried out, scripts with what is in them."""
    import redis

    client = redis.Redis(unix_socket_path=str(store.socket))
    counted = client.info("commandstats")
    client.close()
    return sum(
        int(each["calls"])
        for name, each in counted.items()
        if name.removeprefix(_LISTED).partition("|")[0] not in _OF_THE_DRIVER
    )


def notify(count: int) -> float:
    """Milliseconds until an update has reached the last of many streams on four workers."""
    with (
        running("redis", "--appendfsync", "everysec") as store,
        _machine(store, ENOUGH, "workers=4") as server,
        get_streams(server, count) as (streams, _),
        Probe(server.port) as probe,
    ):
        touch: dict[str, object] = {"name": "touch", "arguments": {}}
        started = time.perf_counter()
        probe.ask(messages.modern("tools/call", touch, 1, "touch"))
        return 1e3 * streams.seconds_until_all_have(b"notifications/resources/updated", started)


def failover() -> float:
    """Seconds from the death of a process until another one has finished its task."""
    with tempfile.TemporaryDirectory() as folder, running("redis") as store:
        added = {"MCPEARL_STORE": store.url}
        mark = str(Path(folder, "begun"))
        with (
            serving(_TASKS, mark, added=added) as dead,
            serving(_TASKS, mark, added=added) as heir,
            Probe(dead.port) as first,
            Probe(heir.port) as second,
        ):
            task = _result(first, "tools/call", {"name": "job", "arguments": {}}, "job")["taskId"]
            _until(lambda: Path(mark).exists(), "the task did not begin")
            os.kill(dead.process.pid, signal.SIGKILL)
            started = time.perf_counter()
            asked = {"taskId": task}
            _until(
                lambda: _result(second, "tasks/get", asked, str(task))["status"] == "completed",
                "no process took the task",
            )
            return time.perf_counter() - started


def _result(probe: Probe, method: str, params: dict[str, object], name: str) -> dict[str, object]:
    request = messages.modern(method, params | {"_meta": _TAKES_TASKS}, 1, name)
    answer = json.loads(probe.ask(request).body)
    if "result" not in answer:
        raise WrongAnswer(f"{method} was answered with {answer}")
    result: dict[str, object] = answer["result"]
    return result


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise WrongAnswer(otherwise)
        time.sleep(0.05)
