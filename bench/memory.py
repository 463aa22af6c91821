"""The in-memory measure: each Python SDK's own client to its own server, in its own environment."""

import json
import subprocess

from bench.environments import SERVERS, clean_environ
from bench.peers import MCPEARL, PYTHON_PEERS, Peer, interpreter
from bench.progress import say
from bench.results import Results, WrongAnswer

PATIENCE_SECONDS = 180


def run(results: Results, *, quick: bool) -> None:
    """Measure the Python peers; a peer with two ways in memory has a figure for each."""
    for peer in PYTHON_PEERS:
        say(f"in memory: {peer.title}")
        calls = 100 if quick else 20_000 if peer is MCPEARL else 2_000
        try:
            ways = measure(peer, calls, 1 if quick else 3)
        except WrongAnswer as error:
            results.wrong.append(f"in memory, {peer.title}: {error}")
            continue
        for way, figure in ways.items():
            results.add("memory_calls" if way == "default" else f"memory_{way}", peer.name, figure)


def measure(peer: Peer, calls: int, rounds: int) -> dict[str, float]:
    """Calls per second by the way the client reaches the server."""
    script = str(SERVERS / "in_memory.py")
    try:
        done = subprocess.run(
            [interpreter(peer), script, peer.name, str(calls), str(rounds)],
            capture_output=True,
            text=True,
            env=clean_environ(),
            check=False,
            timeout=PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise WrongAnswer(f"no end within {PATIENCE_SECONDS} s") from None
    if done.returncode:
        raise WrongAnswer((done.stderr.strip() or "no message").splitlines()[-1])
    return json.loads(done.stdout)
