"""Five minutes of mixed load with sessions that come and go, and what the server's memory does.

Eight clients call, stream, subscribe, end their sessions or abandon them, and hang up in the middle of
a call. They come at a steady pace, and abandoned sessions expire after seconds here, so that as many
end as begin: memory that still grows is lost.
"""

import random
import socket
import statistics
import threading
import time
from collections.abc import Callable

from bench import http_messages as messages
from bench.http import begin
from bench.http_messages import TURNS, Request
from bench.http_probe import Probe
from bench.http_server import HttpServer, http_command, serving
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results, WrongAnswer

CLIENTS = 8
PACE = 1 / 25  # seconds between the visits of one client
MINUTES = 5
IDLE_SHARE = 10  # of a minute, after which an abandoned session expires
QUARTERS = 4  # of a minute; those of the last one are its rounds
NOTE = "bench://note"
PATIENCE_SECONDS = 30


def run(results: Results, *, quick: bool) -> None:
    """Load a server for five minutes, or for five times two seconds."""
    minute = 2.0 if quick else 60.0
    with serving(http_command(MCPEARL), f"idle_timeout={minute / IDLE_SHARE}") as server:
        crowd = Crowd(server.port)
        crowd.start()
        try:
            minutes = [watch(server, crowd, minute, number) for number in range(1, MINUTES + 1)]
        finally:
            crowd.stop()
    results.wrong += [f"soak: {what}" for what in crowd.wrong]
    second = statistics.fmean(minutes[1])
    for quarter in minutes[-1]:
        results.add_round("http_soak", "mcpearl", quarter / second * 100)
        results.add_round("http_soak_memory", "mcpearl", quarter / 1e6)


def watch(server: HttpServer, crowd: "Crowd", minute: float, number: int) -> list[float]:
    """The mean memory of every quarter of one minute."""
    means = [_mean_rss(server, minute / QUARTERS) for _ in range(QUARTERS)]
    memory = statistics.fmean(means) / 1e6
    say(f"soak: minute {number} of {MINUTES}, {memory:.1f} MB, {crowd.visits:,} visits so far")
    return means


def _mean_rss(server: HttpServer, seconds: float) -> float:
    samples: list[int] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        samples.append(server.rss)
        time.sleep(seconds / 30)
    return statistics.fmean(samples)


class Crowd:
    """Clients, each in its own thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._live, args=(random.Random(seed),), daemon=True)
            for seed in range(CLIENTS)
        ]
        self.visits = 0
        self.wrong: list[str] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def _live(self, chance: random.Random) -> None:
        begins = time.monotonic()
        while not self._over.wait(max(0.0, begins - time.monotonic())):
            begins = max(begins + PACE, time.monotonic())  # a late visit is not made up for
            visit = chance.choice(VISITS)
            try:
                visit(self._port, chance)
            except (OSError, WrongAnswer) as error:
                self.wrong.append(f"{visit.__name__}: {error!r}")
                return
            self.visits += 1


# The visits a client makes


def _in_session(session: str | None, tool: dict[str, object], number: int) -> Request:
    return messages.in_session(session, "tools/call", tool, number)


def a_session_from_begin_to_end(port: int, chance: random.Random) -> None:
    """Calls, a stream of progress, and DELETE."""
    with Probe(port) as probe:
        session = begin(probe)
        for number in chance.sample(TURNS, 10):
            response = probe.ask(_in_session(session, messages.add(number), number))
            messages.check_sum(number, response.kind, response.body)
        response = probe.ask(_in_session(session, messages.steps(1), 1))
        messages.check_steps(1, response.kind, response.body)
        probe.ask(_in_session(session, {}, 0).without_body(), "DELETE")


def an_abandoned_session(port: int, chance: random.Random) -> None:
    """A few calls, without an end."""
    with Probe(port) as probe:
        session = begin(probe)
        for number in chance.sample(TURNS, 3):
            probe.ask(_in_session(session, messages.add(number), number))


def calls_without_a_session(port: int, chance: random.Random) -> None:
    """Calls of 2026-07-28, some of which stream."""
    with Probe(port) as probe:
        for number in chance.sample(TURNS, 20):
            request = messages.modern("tools/call", messages.add(number), number, "add")
            response = probe.ask(request)
            messages.check_sum(number, response.kind, response.body)
        probe.ask(messages.modern("tools/call", messages.steps(1), 1, "steps"))


def _follow(port: int, request: Request, method: str) -> None:
    """Open a stream, wait for a notification, and close."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
        connection.sendall(request.encode(f"127.0.0.1:{port}", method))
        received = connection.recv(1 << 16)
        touch: dict[str, object] = {"name": "touch", "arguments": {}}
        with Probe(port) as probe:
            probe.ask(messages.modern("tools/call", touch, 1, "touch"))
        while b"notifications/resources/updated" not in received:
            part = connection.recv(1 << 16)
            if not part:
                raise WrongAnswer(f"the stream ended: {received[-200:]!r}")
            received += part


def a_standing_stream(port: int, chance: random.Random) -> None:
    """A session that subscribes to the note, and is abandoned."""
    with Probe(port) as probe:
        session = begin(probe)
        probe.ask(messages.in_session(session, "resources/subscribe", {"uri": NOTE}, 1))
        _follow(port, _in_session(session, {}, 0).without_body(), "GET")


def a_subscription(port: int, chance: random.Random) -> None:
    """The same in 2026-07-28."""
    params: dict[str, object] = {"notifications": {"resourceSubscriptions": [NOTE]}}
    _follow(port, messages.modern("subscriptions/listen", params, 1), "POST")


def a_call_hung_up_on(port: int, chance: random.Random) -> None:
    """A call with many progress notifications, whose client has gone."""
    tool: dict[str, object] = messages.steps(1) | {"arguments": {"count": 1_000}}
    request = messages.modern("tools/call", tool, 1, "steps")
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
        connection.sendall(request.encode(f"127.0.0.1:{port}"))
        connection.recv(1 << 10)


VISITS: tuple[Callable[[int, random.Random], None], ...] = (
    a_session_from_begin_to_end,
    an_abandoned_session,
    calls_without_a_session,
    a_standing_stream,
    a_subscription,
    a_call_hung_up_on,
)
