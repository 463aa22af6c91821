"""Metrics of several workers: one page for all of them, which outlives each of them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from mcpearl import Client, McpError, Server
from mcpearl.server.serving.worker_board import WorkerBoard
from mcpearl.telemetry.metrics import MetricsSnapshot
from mcpearl.telemetry.prometheus import METRICS
from mcpearl.telemetry.shared import SharedSnapshots
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
from tests.redis_server import fresh_address
from tests.telemetry.test_metrics import OPERATION, Samples, read, value
from tests.transports.raw_http import Raw
from tests.waiting import eventually

SERVER = """
import os, sys
from mcpearl import Server

app = Server("measured", telemetry=False)

@app.tool
def who() -> int:
    "Return the process."
    return os.getpid()

app.run("http", port=int(sys.argv[1]), workers=2, metrics="/metrics", health="/health")
"""


async def scraped(port: int) -> Samples:
    return read((await Raw(port).request("GET", {}, path="/metrics")).body)


def calls(samples: Samples) -> float:
    found = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "who"}
    return samples.get((f"{OPERATION}_count", frozenset(found.items())), 0)


async def test_every_worker_shows_the_numbers_of_all(tmp_path: Path) -> None:
    script, port = tmp_path / "server.py", free_port()
    script.write_text(SERVER)
    process = subprocess.Popen([sys.executable, str(script), str(port)])
    url = f"http://127.0.0.1:{port}/mcp"

    async def call() -> int | None:
        try:
            async with Client(url, connect_timeout=2, telemetry=False) as client:
                return int((await client.call_tool("who")).text)
        except Exception:
            return None

    try:
        await eventually(call)
        seen = [await call() for _ in range(30)]
        made = 1 + len(seen)
        assert None not in seen

        async def all_there() -> bool:
            # Of both workers, each of which has to have seen what the other wrote down.
            pages = [await scraped(port) for _ in range(20)]
            return all(
                calls(samples) == made and value(samples, "mcpearl_processes") == 2
                for samples in pages
            )

        await eventually(all_there)

        async def both_ready() -> bool:
            answer = await Raw(port).request("GET", {}, path="/health/ready")
            assert (answer.status, answer.json["status"]) == (200, "ready")
            return bool(answer.json["workers"] == {"of": 2, "alive": 2, "ready": 2})

        await eventually(both_ready)
        victim = next(each for each in seen if each is not None)
        psutil.Process(victim).kill()

        async def replaced() -> bool:
            try:
                samples = await scraped(port)
            except (OSError, asyncio.IncompleteReadError):
                return False
            return value(samples, "mcpearl_worker_starts_total") == 3 and calls(samples) == made

        await eventually(replaced)
    finally:
        process.terminate()
        process.wait(30)


EVERYTHING = """
import asyncio, os, sys
from mcpearl import Gateway, Isolate, RateLimit

kept = {"store": sys.argv[3], "receipts": sys.argv[4]}
app = Gateway({"behind": sys.argv[2]}, name="all", telemetry=False, **kept)

@app.tool
def who() -> int:
    "Return the process."
    return os.getpid()

@app.tool(rate=RateLimit(1, per=3600))
async def rare() -> str:
    "Is refused the second time."
    return "once"

@app.tool(isolate=Isolate(processes=1))
def alone() -> int:
    "Return an isolated process."
    return os.getpid()

@app.tool(task="required")
async def long() -> str:
    "Run as a task."
    return "done"

app.add_resource("note://a", lambda: "x", name="a")
where = {"port": int(sys.argv[1]), "websocket": "/ws"}
app.run("http", workers=2, metrics="/metrics", health="/health", **where)
"""


async def test_all_families_of_several_workers_come_together(tmp_path: Path) -> None:
    """Each kind of number is made at one worker or both, and any worker shows it."""
    port = free_port()
    behind = Server("behind", telemetry=False)
    async with behind.serving("http", port=0) as url:
        script = tmp_path / "server.py"
        script.write_text(EVERYTHING)
        kept = [fresh_address(), str(tmp_path / "receipts")]
        program = [sys.executable, str(script), str(port), url, *kept]
        process = subprocess.Popen(program)
        try:
            await eventually(lambda: answers(port))
            seen = set[str]()
            while len(seen) < 2:
                async with client_of(port) as client:
                    seen.add((await client.call_tool("who")).text)
            async with using_everything(port):
                families = {metric.name for metric in METRICS.values()}

                async def missing() -> set[str]:
                    pages = [await scraped(port) for _ in range(6)]
                    shown = ({base_of(name) for name, _ in page} for page in pages)
                    return families - set.intersection(*shown)

                async def all_there() -> bool:
                    return not await missing()

                try:
                    await eventually(all_there)
                except AssertionError:
                    raise AssertionError(f"not on every page: {await missing()}") from None

                async def is_counted() -> bool:
                    page = await scraped(port)
                    return (
                        value(page, "mcpearl_processes") == 2
                        and value(page, "mcpearl_store_up") == 2
                        and value(page, "mcpearl_upstreams", state="ready") == 2
                        and value(page, "mcpearl_bounds_reached_total", bound="tool.rate") >= 1
                        and value(page, "mcpearl_tasks_ended_total", state="completed") == 1
                        and value(page, "mcpearl_http_refused_total", status="405") == 1
                    )

                await eventually(is_counted)  # what a worker has not written down is not shown yet
        finally:
            process.terminate()
            process.wait(30)


def base_of(name: str) -> str:
    """The family that a sample belongs to."""
    for end in ("_bucket", "_sum", "_count"):
        if name.startswith("mcp_server_") and name.endswith(end):
            return name.removesuffix(end)
    return name


def client_of(port: int, **options: Any) -> Client:
    return Client(f"http://127.0.0.1:{port}/mcp", connect_timeout=5, telemetry=False, **options)


async def answers(port: int) -> bool:
    try:
        async with client_of(port) as client:
            await client.ping()
    except Exception:
        return False
    return True


@asynccontextmanager
async def using_everything(port: int) -> AsyncIterator[None]:
    """Have a number of each kind to show; two clients stay for the time of the block."""
    assert (await Raw(port).request("PUT", {}, path="/mcp")).status == 405
    legacy = client_of(port, protocol="2025-11-25")
    address = f"ws://127.0.0.1:{port}/ws"
    async with Client(address, telemetry=False) as gone:
        await gone.call_tool("who")
    async with legacy as client, Client(address, telemetry=False) as other:
        await other.call_tool("who")
        await client.list_tools()
        await client.subscribe("note://a")
        await client.call_tool("alone")
        for _ in range(3):
            with suppress(McpError):
                await client.call_tool("rare")
        assert (await client.call_tool("long")).text == "done"
        yield


def test_a_worker_that_is_silent_or_not_ready_shows(clock: MovableClock) -> None:
    board = WorkerBoard(3)
    board.write(0, True)
    board.write(2, False)
    assert board.summary() == {"of": 3, "alive": 2, "ready": 1}
    clock.move(60)
    board.write(0, True)
    assert board.summary() == {"of": 3, "alive": 1, "ready": 1}


def test_a_snapshot_that_is_torn_or_too_large_is_not_shown() -> None:
    shared = SharedSnapshots(2, half=400)
    first = MetricsSnapshot({("tools/call", "a", ""): [0.5, 10, 1]}, {}, {}, {"lag": {"": 0.1}})
    assert shared.read(0) is None
    assert shared.write(0, first)
    assert shared.read(0) == (first, True)
    large = MetricsSnapshot(
        {("tools/call", str(number), ""): [0.5, 10, 1] for number in range(100)}
    )
    assert not shared.write(0, large)
    valid = shared._memory[0]
    start = 1 + (1 - valid) * 400
    shared._memory[start : start + 100] = b"x" * 100  # a worker died while it wrote the other half
    assert shared.read(0) == (first, True)
    assert shared.others(0) == []
    assert shared.others(1) == [(first, True)]


async def test_a_worker_whose_check_fails_is_not_counted_as_ready(tmp_path: Path) -> None:
    port, broken = free_port(), tmp_path / "broken"
    check = f"""
@app.health
def whole() -> bool:
    return not os.path.exists({str(broken)!r})

app.run("""
    program = SERVER.replace("\napp.run(", check)
    process = subprocess.Popen([sys.executable, "-c", program, str(port)])

    async def says(status: int, ready: int) -> bool:
        try:
            answer = await Raw(port).request("GET", {}, path="/health/ready")
        except OSError:
            return False
        workers = {"of": 2, "alive": 2, "ready": ready}
        return answer.status == status and bool(answer.json["workers"] == workers)

    try:
        await eventually(lambda: says(200, 2))
        broken.touch()
        await eventually(lambda: says(503, 0))
        broken.unlink()
        await eventually(lambda: says(200, 2))
    finally:
        process.terminate()
        process.wait(30)
