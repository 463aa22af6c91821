"""Metrics of several workers: one page for all of them, which outlives each of them."""

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mcpearl import Client
from mcpearl.server.serving.worker_board import WorkerBoard
from mcpearl.telemetry.metrics import MetricsSnapshot
from mcpearl.telemetry.shared import SharedSnapshots
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
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


@pytest.mark.parametrize("form", ["grafana.json", "alerts.yml"])
def test_dashboard_and_alerts_name_metrics_that_exist(form: str) -> None:
    import re

    from mcpearl.telemetry.prometheus import METRICS

    text = Path(__file__).parents[2].joinpath("examples/operations", form).read_text()
    named = set(re.findall(r"\b(?:mcp_server|mcpearl|process)_[a-z_]+", text))
    known = {metric.name for metric in METRICS.values()}
    known |= {
        f"{metric.name}_{end}"
        for metric in METRICS.values()
        if metric.kind == "histogram"
        for end in ("bucket", "sum", "count")
    }
    assert len(named) > 8
    assert named <= known, named - known


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
