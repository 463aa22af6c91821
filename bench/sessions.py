"""Many clients over HTTP: the memory of an idle session, and one notification to all open streams.

A stream is open on its own connection, and counts as reached when the notification can be read from
it; the clock runs from the request that causes it to the last stream.
"""

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench import http_messages as messages
from bench.files import allow_files
from bench.http import begin
from bench.http_messages import Request
from bench.http_probe import Probe
from bench.http_server import HttpServer, http_command, serving
from bench.peers import FASTMCP, MCP, MCPEARL, TS_V1, Peer, in_turn
from bench.progress import say
from bench.results import Results, WrongAnswer

NOTE = "bench://note"
ENOUGH = "max_streams=100000"
WARM_UP = 200  # sessions before memory is read, so that everything is loaded
ADDRESSES = 100  # of this machine, from which streams are opened
PATIENCE_SECONDS = 30
SESSIONS = {MCPEARL: 10_000, MCP: 2_000, FASTMCP: 2_000, TS_V1: 2_000}
STREAMS = 10_000


def run(results: Results, *, quick: bool) -> None:
    """Measure the memory of idle sessions of every peer that has them, and the streams of mcpearl."""
    rounds, share = (1, 20) if quick else (3, 1)
    streams = min(STREAMS // share, allow_files())
    if streams < STREAMS // share:
        results.missing.append(
            f"streams beyond {streams:,}: the limit of open files is lower (ulimit -Hn)"
        )
    for number in range(1, rounds + 1):
        for peer in in_turn(SESSIONS, number):
            count = SESSIONS[peer] // share
            say(
                f"sessions: memory of {count:,} idle ones, {peer.title}, round {number} of {rounds}"
            )
            with results.noting(f"sessions, {peer.title}"):
                results.add_round("http_session_memory", peer.name, session_kilobytes(peer, count))
        for kind, opened in (("get", get_streams), ("listen", listen_streams)):
            say(f"sessions: {streams:,} streams, {kind}, round {number} of {rounds}")
            with results.noting(f"streams, {kind}"):
                seconds, kilobytes = notify_all(opened, streams)
                results.add_round(f"http_{kind}_notified", "mcpearl", seconds * 1e3)
                results.add_round(f"http_{kind}_memory", "mcpearl", kilobytes)


def session_kilobytes(peer: Peer, count: int) -> float:
    """Resident memory per idle session."""
    with serving(http_command(peer)) as server, Probe(server.port) as probe:
        for _ in range(WARM_UP):
            begin(probe)
        before = server.rss
        for _ in range(count):
            begin(probe)
        return (server.rss - before) / count / 1e3


# Streams


def _source(number: int) -> str:
    """What one client may hold is bounded: they come from as many addresses as clients would."""
    return f"127.0.0.{2 + number % ADDRESSES}"


Opened = Callable[[HttpServer, int], AbstractContextManager[tuple["Streams", int]]]


class Streams:
    """Open connections on which events are awaited."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []

    def open(self, request: Request, method: str) -> None:
        """Send a request whose response does not end, and wait for it to begin."""
        source = _source(len(self._sockets))
        connection = socket.create_connection(
            ("127.0.0.1", self._server.port), PATIENCE_SECONDS, (source, 0)
        )
        self._sockets.append(connection)
        connection.sendall(request.encode(f"127.0.0.1:{self._server.port}", method))
        begun = b""
        while b"data:" not in begun:  # the first event: an id to resume from, or the subscription
            part = connection.recv(1 << 16)
            begun += part
            if not part or not begun.startswith(b"HTTP/1.1 200"[: len(begun)]):
                raise WrongAnswer(f"a stream did not begin: {begun[:200]!r}")
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ)

    def seconds_until_all_have(self, text: bytes, started: float) -> float:
        """Wait until every stream has received this text."""
        waiting = set(self._sockets)
        while waiting:
            ready = self._selector.select(PATIENCE_SECONDS)
            if not ready:
                raise WrongAnswer(
                    f"{len(waiting)} of {len(self._sockets)} streams received nothing"
                )
            for key, _ in ready:
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                part = connection.recv(1 << 16)
                if not part:
                    raise WrongAnswer("a stream ended")
                if text in part:
                    waiting.discard(connection)
        return time.perf_counter() - started

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()
        self._selector.close()


@contextmanager
def get_streams(server: HttpServer, count: int) -> Iterator[tuple[Streams, int]]:
    """Sessions of 2025-11-25 that subscribe to the note, each with its standing stream."""
    sessions = []
    for number in range(ADDRESSES):
        with Probe(server.port, _source(number)) as probe:
            for _ in range(number, count, ADDRESSES):
                session = begin(probe)
                probe.ask(messages.in_session(session, "resources/subscribe", {"uri": NOTE}, 1))
                sessions.append(session)
    before = server.rss
    streams = Streams(server)
    try:
        for session in sessions:
            streams.open(messages.in_session(session, "", {}, 0).without_body(), "GET")
        yield streams, before
    finally:
        streams.close()


@contextmanager
def listen_streams(server: HttpServer, count: int) -> Iterator[tuple[Streams, int]]:
    """Subscriptions of 2026-07-28 to the note."""
    before = server.rss
    streams = Streams(server)
    params: dict[str, object] = {"notifications": {"resourceSubscriptions": [NOTE]}}
    try:
        for number in range(count):
            streams.open(messages.modern("subscriptions/listen", params, number), "POST")
        yield streams, before
    finally:
        streams.close()


def notify_all(opened: Opened, count: int) -> tuple[float, float]:
    """Seconds until the last stream was reached, and the memory of one in KB."""
    with (
        serving(http_command(MCPEARL), ENOUGH) as server,
        opened(server, count) as (streams, before),
        Probe(server.port) as probe,
    ):
        kilobytes = (server.rss - before) / count / 1e3
        touch: dict[str, object] = {"name": "touch", "arguments": {}}
        started = time.perf_counter()
        probe.ask(messages.modern("tools/call", touch, 1, "touch"))
        seconds = streams.seconds_until_all_have(b"notifications/resources/updated", started)
    return seconds, kilobytes
