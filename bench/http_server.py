"""A peer's HTTP server as a process on a free port."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from bench import environments
from bench.environments import SERVERS, clean_environ
from bench.peers import MCPEARL, PYTHON_PEERS, Peer, interpreter
from bench.results import WrongAnswer

PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class HttpServer:
    """A server that listens."""

    port: int
    process: psutil.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def rss(self) -> int:
        """Bytes of memory it has now."""
        return int(self.process.memory_info().rss)


def http_command(peer: Peer) -> list[str]:
    """The command that starts the HTTP server of a peer, but for the port."""
    if peer in PYTHON_PEERS:
        return [interpreter(peer), str(SERVERS / f"{peer.name}_http.py")]
    home = environments.typescript_peers()
    return [str(environments.node()), str(home / f"{peer.name}_http.mjs")]


def echo_command() -> list[str]:
    """The command that starts the bare echo, but for the port."""
    return [interpreter(MCPEARL), str(SERVERS / "echo_http.py")]


@contextmanager
def serving(command: list[str], *options: str) -> Iterator[HttpServer]:
    """Have a server running."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [*command, str(port), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=clean_environ(),
        )
        try:
            if not _listens(process, port):
                stderr.seek(0)
                said = stderr.read().decode(errors="replace").strip().splitlines()
                raise WrongAnswer(f"it did not start: {said[-1] if said else 'it said nothing'}")
            yield HttpServer(port, psutil.Process(process.pid))
        finally:
            process.kill()
            process.wait()


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False
