"""Isolated tools on real wires, and what is left of them when the server goes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mcpearl import Client, ConnectionLost, Isolate
from tests.ports import free_port
from tests.server.isolation.apps import alive, make
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "tests.server.isolation.serve"]


@contextmanager
def served(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def connected(port: int) -> Client:
    async def try_to() -> Client | None:
        client = Client(f"http://127.0.0.1:{port}/mcp")
        try:
            await client.connect()
        except ConnectionLost:
            return None
        return client

    client: Client = await eventually(try_to)
    return client


def below(pid: int) -> list[int]:
    return [each.pid for each in psutil.Process(pid).children(recursive=True)]


async def test_on_stdio_what_a_tool_prints_is_not_read_as_a_message() -> None:
    command = [*COMMAND, "stdio"]
    async with Client(command, cwd=str(ROOT)) as client:
        for _ in range(3):
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            assert "SIGSEGV" in (await client.call_tool("segfault")).text
        pid = (await client.call_tool("pid")).data
    await eventually(lambda: not alive(pid))


async def test_a_running_loop_serves_isolated_tools_over_http() -> None:
    async with make().serving("http", port=0) as url, Client(url) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert "SIGSEGV" in (await client.call_tool("segfault")).text
        assert (await client.call_tool("pid")).data != os.getpid()


@pytest.mark.parametrize(("wire", "forks"), [("http", 2), ("workers", 3)])
async def test_the_zygote_is_forked_before_there_are_threads_or_a_loop(
    wire: str, forks: int
) -> None:
    port = free_port()
    with served(wire, str(port)):
        client = await connected(port)
        try:
            found = (await client.call_tool("forked_from")).data
            # The worker, if there are several; the zygote; the process. One that is replaced is one more.
            assert len(found) >= forks
            assert all(each == [1, False] for each in found)
        finally:
            await client.close()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
async def test_nothing_outlives_the_server(ending: signal.Signals) -> None:
    port = free_port()
    with served("http", str(port)) as process:
        client = await connected(port)
        try:
            started = (await client.call_tool("multiply", {"count": 4})).data
            call = asyncio.ensure_future(client.call_tool("loop"))
            await eventually(lambda: len(below(process.pid)) >= 6)
            pids = {*below(process.pid), *started}
            process.send_signal(ending)
            process.wait()
            await eventually(lambda: not any(alive(pid) for pid in pids))
            call.cancel()
        finally:
            await client.close()


async def test_each_worker_has_processes_of_its_own() -> None:
    port = free_port()
    with served("workers", str(port)) as process:
        clients = [await connected(port) for _ in range(4)]
        try:
            for client in clients:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
                assert "SIGSEGV" in (await client.call_tool("segfault")).text
            pids = below(process.pid)
            workers = [each.pid for each in psutil.Process(process.pid).children()]
            assert len(workers) == 2
            # One worker is killed: its processes go, and it comes back with others.
            gone = below(workers[0])
            assert gone
            os.kill(workers[0], signal.SIGKILL)
            await eventually(lambda: not any(alive(pid) for pid in gone))
            process.terminate()
            process.wait()
            await eventually(lambda: not any(alive(pid) for pid in pids))
        finally:
            for client in clients:
                await client.close()


async def test_a_signal_to_the_whole_group_does_not_end_calls_in_hand() -> None:
    async with Client(make(Isolate(processes=1))) as client:
        pid = (await client.call_tool("pid")).data
        call = asyncio.ensure_future(client.call_tool("doze", {"seconds": 0.5}))
        zygote = psutil.Process(pid).ppid()
        for each in (pid, zygote):
            os.kill(each, signal.SIGTERM)
        assert (await call).data == "rested"
        assert (await client.call_tool("pid")).data == pid
