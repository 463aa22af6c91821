"""As systemd runs a service: sockets that are open already, readiness, the watchdog."""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mcpearl import Client
from tests.ports import free_port
from tests.transports.raw_http import Raw

SCRIPT = """
import sys
from mcpearl import Server
app = Server("service")
app.run({arguments})
"""


def start(tmp_path: Path, arguments: str, listening: socket.socket | None = None, **env: str):
    script = tmp_path / "server.py"
    script.write_text(SCRIPT.format(arguments=arguments))
    command = f"exec {sys.executable} {script}"
    if listening is not None:
        number = listening.fileno()
        command = f"exec 3<&{number}; export LISTEN_PID=$$ LISTEN_FDS=1; {command}"
    return subprocess.Popen(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        pass_fds=() if listening is None else (listening.fileno(),),
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_socket_that_is_open_already_is_served(tmp_path: Path, workers: int):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        process = start(tmp_path, f"'http', workers={workers}", listening)
        try:
            assert f"http://127.0.0.1:{port}/mcp" in process.stderr.readline()

            async def use() -> None:
                async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                    await client.ping()

            asyncio.run(use())
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        assert process.returncode == 0


def test_a_unix_socket_that_is_open_already_stays_when_the_server_ends(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
):
    path = tmp_path_factory.mktemp("s") / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        process = start(tmp_path, f"'unix', path={str(path)!r}", listening)
        try:
            assert f"unix://{path}" in process.stderr.readline()

            async def use() -> None:
                async with Client(f"unix://{path}") as client:
                    await client.ping()

            asyncio.run(use())
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        assert path.exists()


def test_the_manager_hears_of_readiness_life_and_stopping(tmp_path: Path):
    address = tmp_path / "n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(30)
        options = "'http', port=0, health='/health', drain_delay=30"
        env = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "200000"}
        process = start(tmp_path, options, **env)
        try:
            heard = [manager.recv(4096).decode() for _ in range(4)]
            assert any("READY=1" in message for message in heard)
            assert heard.count("WATCHDOG=1") >= 2
            url = process.stderr.readline().split("'")[1]
            process.send_signal(signal.SIGTERM)
            while "STOPPING=1" not in manager.recv(4096).decode():
                pass

            async def ready() -> tuple[int, str]:
                raw = Raw(int(url.split(":")[2].split("/")[0]))
                answer = await raw.request("GET", {}, path="/health/ready")
                return answer.status, answer.json["reasons"]["draining"]

            # It still serves, so that load balancers can notice; a second signal ends it at once.
            assert asyncio.run(ready()) == (503, "the server is shutting down")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


SLOW = """
import asyncio, os, sys, time
from contextlib import asynccontextmanager
from pathlib import Path
from mcpearl import Server

@asynccontextmanager
async def lifespan(app):
    while not Path({gate!r}).exists():
        await asyncio.sleep(0.01)
    yield

app = Server("service", lifespan=lifespan)
app.run("http", port={port}, workers=3)
"""


def test_the_parent_of_workers_speaks_for_all_of_them(tmp_path: Path):
    """It is ready when all of them are; a worker that is replaced makes no difference to systemd."""
    address, gate, port = tmp_path / "n", tmp_path / "gate", free_port()
    script = tmp_path / "server.py"
    script.write_text(SLOW.format(gate=str(gate), port=port))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.bind(str(address))
        manager.settimeout(30)
        process = subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, "NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "100000"},
        )

        def heard() -> str:
            data, [(_, _, credentials)], _, _ = manager.recvmsg(4096, 100)
            assert struct.unpack("iii", credentials)[0] == process.pid, "a worker spoke"
            return data.decode()

        try:
            assert [heard() for _ in range(10)] == ["WATCHDOG=1"] * 10, "no worker is up yet"
            gate.touch()
            while (message := heard()) != "READY=1":
                assert message == "WATCHDOG=1"
            workers = psutil.Process(process.pid).children()
            assert len(workers) == 3

            async def use() -> None:
                async with Client(f"http://127.0.0.1:{port}/mcp", telemetry=False) as client:
                    await client.ping()

            asyncio.run(use())
            workers[0].kill()
            assert {heard() for _ in range(10)} == {"WATCHDOG=1"}
            process.terminate()
            while (message := heard()) != "STOPPING=1":
                assert message == "WATCHDOG=1"
        finally:
            process.terminate()
            assert process.wait(30) == 0
