"""`mcpearl gateway` and `mcpearl bridge`: any wire to any wire, and nothing left behind."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from mcpearl import Client
from tests.auth.client.world import authority, guarded
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


def with_browser(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """Return the environment of a person with a browser that follows links, and what it visited."""
    visited = tmp_path / "visited"
    browser = tmp_path / "browser.py"
    browser.write_text(BROWSER.format(str(visited)))
    env = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "BROWSER": f"{sys.executable} {browser} %s",
    }
    return env, visited


async def test_a_remote_server_on_stdio_with_a_login(tmp_path: Path) -> None:
    """For a host that knows only stdio: the browser is opened once, the token is kept."""
    env, visited = with_browser(tmp_path)
    async with authority() as issuer, guarded(issuer) as server:
        for _ in range(2):
            command = [*COMMAND, "bridge", server.url, "--auth", "oauth"]
            async with Client(command, env=env, timeout=60) as client:
                assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
        assert visited.read_text().count("/authorize") == 1
        assert len(issuer.asked) == 1


async def test_a_person_logs_in_at_the_terminal(tmp_path: Path) -> None:
    env, visited = with_browser(tmp_path)
    async with authority() as issuer, guarded(issuer) as server:
        refused = await asyncio.to_thread(mcpearl, "call", server.url, "add", "a=2", "b=3", **env)
        assert refused.code == 5
        assert "log in with `--auth oauth`" in refused.err
        assert "auth=`" not in refused.err
        for _ in range(2):
            call = ("call", server.url, "add", "a=2", "b=3", "--auth", "oauth")
            done = await asyncio.to_thread(mcpearl, *call, **env)
            assert (done.code, done.out.strip()) == (0, "5")
        assert visited.read_text().count("/authorize") == 1
        assert len(issuer.asked) == 1


BROWSER = """
import sys, urllib.request
open({!r}, "a").write(sys.argv[1] + "\\n")
urllib.request.urlopen(sys.argv[1]).read()
"""
CLIENT = """
import asyncio, sys
from mcpearl import Client

async def main():
    async with Client(sys.argv[1:]) as client:
        await client.list_tools()
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("killed", ["client", "bridge", "server"])
async def test_whatever_is_killed_no_process_is_left(killed: str) -> None:
    bridged = [*COMMAND, "bridge", str(WEATHER)]
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, *bridged, stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    assert await client.stdout.readline() == b"ready\n"
    everything = [psutil.Process(client.pid), *psutil.Process(client.pid).children(recursive=True)]
    (bridge,) = [each for each in everything[1:] if "bridge" in each.cmdline()]
    servers = [each for each in bridge.children(recursive=True) if str(WEATHER) in each.cmdline()]
    assert servers
    match killed:
        case "client":
            client.kill()
        case "bridge":
            bridge.kill()
        case "server":
            for each in servers:
                each.kill()
            await eventually(lambda: set(bridge.children(recursive=True)) - set(everything))
            everything += bridge.children(recursive=True)  # it has started another one
            client.kill()
    await eventually(lambda: not any(running(each) for each in everything[1:]))
    if client.returncode is None:
        client.kill()
    await client.wait()


def running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_cannot_be_bridged_is_said_in_one_line(tmp_path: Path) -> None:
    done = mcpearl("gateway", tmp_path / "missing.json")
    assert done.code != 0
    assert "no file" in done.err
    (tmp_path / "bad.json").write_text("{")
    assert "bad.json" in mcpearl("gateway", tmp_path / "bad.json").err
    assert mcpearl("bridge", "ftp://x").code != 0
