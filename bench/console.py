"""The console: what it costs a busy server while no page is open, and while one watches.

It is work of the server's own process, so calls are counted for each second of its processor time. The
page is read by a thread here, as a browser reads it, so that what the server writes to it is counted too.
"""

import json
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench import http_messages as messages
from bench import wrk
from bench.environments import SERVERS
from bench.http_server import HttpServer, serving
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import NoAnswer, Results
from bench.turns import per_processor_second, shares

SERVER = [sys.executable, str(SERVERS / "mcpearl_console.py")]
KEY = "a-key-for-the-benchmark"
REQUESTS = [
    messages.modern("tools/call", messages.add(number), number, "add") for number in range(8)
]


def run(results: Results, *, quick: bool) -> None:
    """Measure a server with a console beside one without, in turns."""
    if not wrk.is_there():
        results.missing.append(wrk.MISSING)
        return
    rounds = 1 if quick else 5
    for number in range(1, rounds + 1):
        say(f"console: round {number} of {rounds}")
        with results.noting("a server with a console"):
            found, taken, grown = watched(3 if quick else 15)
            results.add_round("console_idle", MCPEARL.name, found["idle"], taken)
            results.add_round("console_watched", MCPEARL.name, found["watched"], taken)
            results.add_round("console_memory", MCPEARL.name, grown)


def watched(turns: int) -> tuple[dict[str, float], float, float]:
    """Calls with a console in percent of those without, what the host took of them, and by how many MB
    memory grew under a page."""
    with ExitStack() as stack:
        servers = {
            "off": stack.enter_context(serving(SERVER, "off")),
            "idle": stack.enter_context(serving(SERVER, KEY)),
            "watched": stack.enter_context(serving(SERVER, KEY)),
        }
        seen = stack.enter_context(open_page(servers["watched"]))
        for server in servers.values():
            wrk.load(server.port, REQUESTS, 2)
        before = servers["watched"].rss
        measures = {
            kind: partial(per_processor_second, each.process.pid, partial(_load, each.port))
            for kind, each in servers.items()
        }
        found, taken = shares("console", "off", measures, turns)
        if not seen["pulse"] or not seen["calls"]:
            raise NoAnswer(f"the page was told nothing: {seen}")
        return found, taken, (servers["watched"].rss - before) / 1e6


def _load(port: int) -> float:
    return wrk.load(port, REQUESTS, 1).requests


@contextmanager
def open_page(server: HttpServer) -> Iterator[dict[str, int]]:
    """Read the events of a page while a context lasts; yield how many of each kind came."""
    address = f"http://127.0.0.1:{server.port}/console/events"
    request = urllib.request.Request(address, headers={"X-Console-Key": KEY})
    seen = {"pulse": 0, "calls": 0}
    response = urllib.request.urlopen(request, timeout=30)

    def read() -> None:
        try:
            for line in response:
                if line.startswith(b"data:"):
                    kind = json.loads(line[5:])["type"]
                    seen[kind] = seen.get(kind, 0) + 1
        except (OSError, ValueError):
            pass  # it was closed, or its server ended

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    yield seen
