"""What a client can be pointed at, and what it says to everything else."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, ConnectionLost, Server
from mcpearl.protocol.limits import Limits
from mcpearl.transports.memory import memory_pair
from mcpearl.transports.process import ProcessTransport

SERVER = """
import os
from mcpearl import Server
app = Server("of a file")

@app.tool
def where() -> str:
    return os.getcwd()

@app.tool
def variable(name: str) -> str:
    return os.environ.get(name, "-")

app.run()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


async def ask(client: Client, tool: str, **arguments: Any) -> str:
    return (await client.call_tool(tool, arguments)).content[0].text


async def test_a_python_file_is_run(script: Path) -> None:
    async with Client(str(script)) as client:
        assert client.server_info is not None
        assert client.server_info.name == "of a file"
    async with Client(script, env={"MODE": "test"}) as client:
        assert await ask(client, "variable", name="MODE") == "test"


async def test_a_relative_path_is_found_although_cwd_is_elsewhere(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(script.parent)
    async with Client("server.py", cwd=elsewhere) as client:
        assert await ask(client, "where") == str(elsewhere)


async def test_a_command_is_run(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(script.parent))
    async with Client([sys.executable, "-u", str(script)]) as client:
        assert await ask(client, "variable", name="HOME") == str(script.parent)


async def test_a_configuration_of_a_host_is_run(script: Path, tmp_path: Path) -> None:
    configuration = {
        "command": sys.executable,
        "args": [str(script)],
        "env": {"A": "config", "B": "config"},
        "cwd": str(tmp_path),
    }
    async with Client(configuration, env={"B": "call"}) as client:
        assert await ask(client, "variable", name="A") == "config"
        assert await ask(client, "variable", name="B") == "call"
        assert await ask(client, "where") == str(tmp_path)


async def test_a_configuration_may_have_null_members(script: Path) -> None:
    script.chmod(0o755)
    script.write_text(f"#!{sys.executable}\n{SERVER}")
    async with Client({"command": str(script), "args": None, "env": None, "cwd": None}) as client:
        assert client.server_info is not None


async def test_a_transport_is_used_as_it_is(script: Path) -> None:
    async with Client(ProcessTransport([sys.executable, str(script)], Limits())) as client:
        assert client.server_info is not None
    near, far = memory_pair()
    app = Server("by hand")
    async with app.running():
        await app.connect(far)
        async with Client(near) as client:
            assert client.server_info is not None
            assert client.server_info.name == "by hand"


def test_a_client_in_a_plain_with_is_told_what_to_use() -> None:
    with pytest.raises(TypeError, match="`async with Client"), Client(Server("s")):
        pass


@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        (None, TypeError, "pass a Server"),
        (42, TypeError, "pass a Server"),
        ([], TypeError, "a command as a list"),
        ([1, 2], TypeError, "a command as a list"),
        (b"server.py", TypeError, "pass a Server"),
        (Server, TypeError, "pass a Server"),
        ({}, ValueError, "`command`"),
        ({"mcpServers": {}}, ValueError, "this one has no servers"),
        ({"mcpServers": {"a": 7}}, ValueError, "is an object, not a number"),
        ({"url": 7}, ValueError, "text as `url`, not a number"),
        ({"url": "http://127.0.0.1/", "headers": {"a": [1]}}, ValueError, "text as `headers`"),
        ({"command": "x", "args": [1]}, ValueError, r"text as `args\[0\]`, not a number"),
        ({"command": "x", "env": {"PORT": []}}, ValueError, "text as `env`: `PORT` is a list"),
        ({"command": None}, ValueError, "needs `command` or `url`; it has `command`"),
        ({"command": ""}, ValueError, "an empty `command`"),
        ({"command": "x", "args": "-v"}, ValueError, "a list as `args`, not text"),
        ({"command": "x", "env": "A=b"}, ValueError, "an object as `env`, not text"),
        ({"command": "x", "cwd": 5}, ValueError, "a path as `cwd`, not a number"),
        ({"command": "x", "disabled": True}, ValueError, "is disabled"),
        ({"command": "x", "env": {"A": "${NOT_SET_HERE}"}}, ValueError, "NOT_SET_HERE is not set"),
        ([""], ValueError, "command is empty"),
        ("a" * 5000 + ".py", FileNotFoundError, "no such file"),
        ("tcp://[1:9000", ValueError, "needs a host and a port"),
        ("ws://[x]/mcp", ValueError, "not the address of a WebSocket"),
        (["a\0b"], TypeError, "text"),
        ("", ValueError, r"\.py"),
        ("server", ValueError, r"\.py"),
        ("mcp.json", ValueError, r"use `Host\('mcp.json'\)`"),
        ("uvx some-server", ValueError, "command as a list"),
        ("/nowhere/server.py", FileNotFoundError, "no such file"),
        ("python server.py", ValueError, r"command as a list: \['python', 'server.py'\]"),
        ("npx -y 'a server'", ValueError, r"\['npx', '-y', 'a server'\]"),
        (Path("/nowhere/server.py"), FileNotFoundError, "no such file"),
    ],
)
def test_what_cannot_be_a_target_is_refused_at_once(
    target: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Client(target)


async def test_a_missing_command_is_named() -> None:
    with pytest.raises(ConnectionLost, match=r"no-such-command.*was not found") as caught:
        await Client(["no-such-command", "--now"]).connect()
    assert not caught.value.maybe_executed


async def test_a_missing_directory_is_named() -> None:
    with pytest.raises(ConnectionLost, match=r"/nowhere.*was not found"):
        await Client([sys.executable, "-c", ""], cwd="/nowhere").connect()


async def test_a_file_without_execute_permission_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(ConnectionLost, match="cannot start"):
        await Client([str(plain)]).connect()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("tcp://127.0.0.1", "it needs a host and a port, such as tcp://127.0.0.1:9000"),
        ("tls://:9000", "it needs a host and a port, such as tls://"),
        ("tcp://127.0.0.1:many", "it needs a host and a port"),
        ("unix://relative.sock", "it needs a whole path, such as unix:///run/weather.sock"),
        ("ws://", "it is not the address of a WebSocket"),
        ("gopher://127.0.0.1:70", "addresses begin with http://, https://, tcp://"),
    ],
)
def test_an_invalid_address_is_refused_at_once(address: str, says: str):
    with pytest.raises(ValueError, match=says):
        Client(address)
