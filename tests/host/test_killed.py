"""A program with a host that ends in any way: no server process is left."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually

SERVER = """
import os, subprocess, sys
from mcpearl import Server
app = Server("parent")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

@app.tool
def pids() -> list[int]:
    return [os.getpid(), child.pid]

app.run()
"""
PROGRAM = """
import asyncio, os, signal, sys
from mcpearl import Host

async def main():
    async with Host(sys.argv[1]) as host:
        for name in host:
            for pid in (await host.call_tool(f"{name}__pids")).data:
                print(pid)
        print("up", flush=True)
        %s

asyncio.run(main())
"""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # one that waits to be collected is gone, too
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "os._exit(1)",
        "raise RuntimeError",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
    ],
)
async def test_no_process_is_left(tmp_path: Path, end: str) -> None:
    server, program = tmp_path / "server.py", tmp_path / "program.py"
    server.write_text(SERVER)
    program.write_text(PROGRAM % end)
    entry = {"command": sys.executable, "args": [str(server)]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"one": entry, "two": entry}}))
    done = subprocess.run(
        [sys.executable, str(program), str(file)], capture_output=True, text=True, timeout=60
    )
    *pids, up = done.stdout.splitlines()
    assert up == "up", done.stderr
    assert len(pids) == 4
    assert done.returncode in (0, 1, -signal.SIGKILL, -signal.SIGTERM)
    await eventually(lambda: not any(_alive(int(pid)) for pid in pids))
