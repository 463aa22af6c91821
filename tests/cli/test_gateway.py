"""`mcpearl gateway` and `mcpearl bridge`: any wire to any wire, and nothing left behind."""

import json
import os
import signal
import sys
from pathlib import Path

import psutil

from mcpearl import Client
from tests.cli.running import WEATHER, Serving, mcpearl
from tests.waiting import eventually

COMMAND = [sys.executable, "-m", "mcpearl"]


async def test_a_gateway_serves_the_servers_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    program = {"command": sys.executable, "args": ["-m", "mcpearl", "run", str(WEATHER)]}
    file.write_text(json.dumps({"mcpServers": {"weather": program, "none": {"command": "nope"}}}))
    async with Client([*COMMAND, "gateway", str(file)]) as client:
        names = [tool.name async for tool in client.tools()]
        assert names
        assert all(name.startswith("weather__") for name in names)


async def test_a_bridge_from_a_file_to_http_to_stdio_leaves_no_process() -> None:
    with Serving("bridge", str(WEATHER), "--http", "--port", "0") as serving:
        async with Client([*COMMAND, "bridge", serving.url], reconnect=False) as client:
            direct = [tool.name async for tool in client.tools()]
            assert "forecast" in direct or direct
        pid = serving.process.pid
        children = psutil.Process(pid).children(recursive=True)
        assert children
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not any(child.is_running() for child in children))


def test_what_cannot_be_bridged_is_said_in_one_line(tmp_path: Path) -> None:
    done = mcpearl("gateway", tmp_path / "missing.json")
    assert done.code != 0
    assert "no file" in done.err
    (tmp_path / "bad.json").write_text("{")
    assert "bad.json" in mcpearl("gateway", tmp_path / "bad.json").err
    assert mcpearl("bridge", "ftp://x").code != 0
