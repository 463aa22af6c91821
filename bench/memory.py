"""The in-memory measure: each Python SDK's own client to its own server, in its own environment."""

import json
import subprocess

from bench.environments import SERVERS, clean_environ
from bench.peers import MCPEARL, PYTHON_PEERS, Peer, in_turn, interpreter
from bench.progress import say
from bench.results import Results, WrongAnswer

PATIENCE_SECONDS = 180


def run(results: Results, *, quick: bool) -> None:
    """Measure the Python peers; a peer with two ways in memory has a figure for each."""
    rounds = 1 if quick else 5
    for number in range(1, rounds + 1):
        for peer in in_turn(PYTHON_PEERS, number):
            say(f"in memory: {peer.title}, round {number} of {rounds}")
            calls = 100 if quick else 20_000 if peer is MCPEARL else 2_000
            with results.noting(f"in memory, {peer.title}"):
                for way, figure in measure(peer, calls).items():
                    metric = "memory_calls" if way == "default" else f"memory_{way}"
                    results.add_round(metric, peer.name, figure)


def measure(peer: Peer, calls: int) -> dict[str, float]:
    """Calls per second by the way the client reaches the server."""
    script = str(SERVERS / "in_memory.py")
    try:
        done = subprocess.run(
            [interpreter(peer), script, peer.name, str(calls)],
            capture_output=True,
            text=True,
            env=clean_environ(),
            check=False,
            timeout=PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise WrongAnswer(f"it did not end within {PATIENCE_SECONDS} s") from None
    if done.returncode:
        raise WrongAnswer((done.stderr.strip() or "no message").splitlines()[-1])
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
