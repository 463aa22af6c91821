"""`mcpearl run`: finding the server of a file, and serving it on every wire."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpearl import Client
from mcpearl.cli.exits import CommandFailed
from mcpearl.cli.loading import load_server
from tests.cli.running import WEATHER, Screen, Serving, mcpearl

ONE = "from mcpearl import Server\n"


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of modules that this process forgets."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("app = Server('found')", None),
        ("anything = Server('found')", None),
        ("a = Server('other')\nserver = Server('found')", None),
        ("a = Server('other')\nb = Server('found')", "b"),
        ("def make() -> Server:\n    return Server('found')", None),
        ("def make():\n    return Server('found')", "make"),
        ("class Deep:\n    app = Server('found')", "Deep.app"),
        ("same = other = Server('found')", None),
    ],
)
def test_the_server_of_a_file_is_found(own_modules: Path, source: str, name: str | None):
    file = own_modules / "json.py"  # named as a module of Python
    file.write_text(ONE + source)
    assert load_server(f"{file}:{name}" if name else str(file)).name == "found"


def test_files_beside_a_server_do_not_stand_in_for_modules(tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text(ONE + "app = Server('found')")
    (tmp_path / "click.py").write_text("raise ImportError('not the one that is meant')")
    done = mcpearl("ping", "server.py", "--json", cwd=tmp_path, PYTHONSAFEPATH="1")
    assert done.json["server"]["name"] == "found"


@pytest.mark.parametrize(
    ("source", "name", "says"),
    [
        ("x = 1", "", "has no `Server` at its top level"),
        ("a = Server('a')\nb = Server('b')", "", "has several servers: a, b"),
        ("app = Server('a')", ":ap", "has no 'ap'; did you mean `app`?"),
        ("app = 3", ":app", "is int, not an mcpearl `Server`"),
        ("def make(): return 3", ":make", "returned int, not a `Server`"),
        ("async def make(): return 3", ":make", "make the server in a plain function"),
        ("import no_such_module", "", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "", "ZeroDivisionError"),
    ],
)
def test_why_there_is_no_server(own_modules: Path, source: str, name: str, says: str):
    file = own_modules / "server.py"
    file.write_text(ONE + source)
    with pytest.raises(CommandFailed) as failed:
        load_server(f"{file}{name}")
    assert says in str(failed.value)
    assert "mcpearl/cli" not in str(failed.value)


def test_a_file_without_a_server_is_not_served(tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text("1 / 0")
    done = mcpearl("run", file)
    assert done.code == 1
    assert "ZeroDivisionError" in done.err
    assert "mcpearl/cli" not in done.err


def test_a_file_of_a_package_and_a_module(tmp_path: Path):
    package = tmp_path / "weatherly"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "names.py").write_text("NAME = 'inside'\n")
    (package / "server.py").write_text(
        ONE + "from .names import NAME\napp = Server(NAME)\n"  # relative, as in packages
    )
    for target in (package / "server.py", "weatherly.server:app"):
        with Serving("run", target, "--http", "--port", "0", cwd=tmp_path) as serving:
            assert mcpearl("ping", serving.url, "--json").json["server"]["name"] == "inside"


@pytest.mark.parametrize("wire", ["--http", "--tcp", "--ws", "--unix"])
async def test_wires(tmp_path: Path, wire: str):
    options = [wire, tmp_path / "socket"] if wire == "--unix" else [wire, "--port", "0"]
    with Serving("run", WEATHER, *options) as serving:
        async with Client(serving.url) as client:
            assert client.server_info is not None
            assert client.server_info.name == "weather"
        assert serving.stop() == 0


def test_several_wires_and_options_that_belong_to_none(tmp_path: Path):
    both = ["--http", "--unix", str(tmp_path / "s"), "--port", "0"]
    with Serving("run", WEATHER, *both) as serving:
        serving.until("serves at", times=2)
        assert mcpearl("ping", f"unix://{tmp_path}/s").code == 0
    assert "--port is for one wire" in mcpearl("run", WEATHER, "--http", "--tcp", "--port", "1").err
    assert (
        "--workers is not an option of --tcp"
        in mcpearl("run", WEATHER, "--tcp", "--workers", "2").err
    )


def test_workers_and_an_environment_file(tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text(
        ONE
        + "import os\napp = Server('s')\n@app.tool\ndef says() -> str:\n    return os.environ['SAYS']\n"
    )
    (tmp_path / ".env").write_text("# a comment\nexport SAYS='a word'\n")
    with Serving(
        "run", file, "--workers", "2", "--port", "0", "--env-file", tmp_path / ".env"
    ) as serving:
        assert mcpearl("call", serving.url, "says").out == "a word\n"


def test_a_port_that_is_taken():
    with Serving("run", WEATHER, "--http", "--port", "0") as serving:
        port = serving.url.rpartition(":")[2].partition("/")[0]
        done = mcpearl("run", WEATHER, "--http", "--port", port)
    assert done.code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in done.err


def test_on_a_terminal_it_says_how_to_connect():
    with Screen("run", WEATHER) as screen:
        screen.until("to put it into a host:")
        screen.type("\x04")
        assert screen.ended() == 0


def test_a_server_elsewhere_and_a_configuration_are_passed_on(tmp_path: Path):
    with Serving("run", WEATHER, "--http", "--port", "0") as far:
        passed = f"{sys.executable} -m mcpearl run {far.url} --stdio"
        assert "sun in Oslo" in mcpearl("call", passed, "forecast", "city=Oslo").out
        config = tmp_path / "mcp.json"
        servers = {"one": {"url": far.url}, "two": {"url": far.url}}
        config.write_text(json.dumps({"mcpServers": servers}))
        with Serving("run", config, "--http", "--port", "0") as all_of_them:
            names = [
                each["name"] for each in mcpearl("list", all_of_them.url, "--json").json["tools"]
            ]
            assert {"one__forecast", "two__forecast"} <= set(names)
        with Serving("run", f"{config}:one", "--http", "--port", "0") as one:
            assert "sun in Oslo" in mcpearl("call", one.url, "forecast", "city=Oslo").out
