"""A peer's HTTP server as a process on a free port."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from bench.environments import clean_environ
from bench.peers import Peer, command
from bench.results import NoAnswer

PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class HttpServer:
    """A server that accepts connections."""

    port: int
    process: psutil.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def rss(self) -> int:
        """Its resident memory in bytes."""
        return int(self.process.memory_info().rss)


def http_command(peer: Peer) -> list[str]:
    """The command that starts the HTTP server of a peer, up to the port."""
    return command(peer, "http")


@contextmanager
def serving(
    server: list[str], *options: str, added: dict[str, str] | None = None
) -> Iterator[HttpServer]:
    """Run a server on a free port, with environment variables of its own if any are given."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [*server, str(port), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=clean_environ() | (added or {}),
        )
        try:
            if not _listens(process, port):
                stderr.seek(0)
                lines = stderr.read().decode(errors="replace").strip().splitlines()
                raise NoAnswer(f"it did not start: {lines[-1] if lines else 'no message'}")
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
