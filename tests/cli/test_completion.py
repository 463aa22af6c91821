"""Completion in shells: what they are given, and the shells themselves where they are installed.

bash is on every machine that runs these tests. zsh and fish may not be there, so what each of them is
given is tested as well.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.running import LOADED_COMMAND, WEATHER, Screen, Serving, environment, mcpearl

SHELLS = {"bash": ["bash", "--norc"], "zsh": ["zsh", "-f", "-i"], "fish": ["fish", "--no-config"]}
INSTALLED = [name for name in SHELLS if shutil.which(name)]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
LOADED = {
    "bash": 'eval "$(mcpearl completion bash)"',
    "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(mcpearl completion zsh)"',
    "fish": "mcpearl completion fish | source",
}


def given(shell: str, words: str, at: int, home: Path, cwd: Path | None = None) -> list[str]:
    """Return what a shell is given for a line, as lines; `at` is the word that is completed."""
    # fish gives the word itself, the others its number.
    place = words.split()[at] if shell == "fish" else str(at)
    env = environment(
        home, _MCPEARL_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=place
    )
    done = subprocess.run(
        LOADED_COMMAND, env=env, cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str):
    assert "_MCPEARL_COMPLETE" in mcpearl("completion", shell).out


def test_a_shell_without_a_script():
    done = mcpearl("completion", SHELL="/bin/csh")
    assert (done.code, done.err.count("choose one of bash, zsh, fish")) == (2, 1)


def test_bash_is_given_kinds_and_values(tmp_path: Path):
    assert "plain,list" in given("bash", "mcpearl li", 1, tmp_path)
    assert "plain,--timeout" in given("bash", "mcpearl ping --ti", 2, tmp_path)
    assert "file,ser" in given("bash", "mcpearl list ser", 2, tmp_path)


def test_zsh_is_given_kinds_values_and_descriptions(tmp_path: Path):
    lines = given("zsh", "mcpearl migr", 1, tmp_path)
    assert lines[:2] == ["plain", "migrate"]
    assert lines[2].startswith("Rewrite programs of FastMCP")


def test_fish_is_given_descriptions_that_its_script_keeps_whole(tmp_path: Path):
    lines = given("fish", "mcpearl ini", 1, tmp_path)
    assert "plain,init\tMake a new project: a server, tests, pyproject.toml, README." in lines
    assert 'string split -m 1 ","' in mcpearl("completion", "fish").out


def test_servers_of_hosts_are_completed_beside_files(tmp_path: Path):
    assert mcpearl("install", WEATHER, "cursor", "--name", "weather", "-y", home=tmp_path).code == 0
    (tmp_path / "webserver.py").write_text("")
    for command in ("list", "install", "bridge", "console"):
        lines = given("bash", f"mcpearl {command} we", 2, tmp_path, cwd=tmp_path)
        assert {"plain,weather", "plain,webserver.py"} <= set(lines), command
        assert given("bash", f"mcpearl {command} ser", 2, tmp_path) == ["file,ser", ""], command


def test_hosts_are_completed(tmp_path: Path):
    assert "plain,cursor" in given("bash", "mcpearl install server.py cur", 3, tmp_path)
    assert "plain,goose" in given("bash", "mcpearl uninstall weather go", 3, tmp_path)


def test_servers_of_hosts_are_completed_where_they_are_taken_out(tmp_path: Path):
    for host, name in (("cursor", "weather"), ("goose", "web")):
        assert mcpearl("install", WEATHER, host, "--name", name, "-y", home=tmp_path).code == 0
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/settings.json").write_text("{broken")
    assert given("bash", "mcpearl uninstall we", 2, tmp_path)[:2] == ["plain,weather", "plain,web"]


@pytest.mark.parametrize("shell", INSTALLED)
def test_in_the_shell_itself(shell: str, tmp_path: Path):
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PATH": PATH, "PS1": "> "}
    with Screen(program=SHELLS[shell], cwd=tmp_path, **home) as screen:
        screen.type(f"{LOADED[shell]}; echo rea''dy\n")
        screen.until("ready")
        screen.type("mcpearl comple")
        screen.type("tion --js\t")
        screen.until("--json")


def in_line(line: str, home: Path, **more: str) -> list[str]:
    """Return what bash is given at the end of a line, with the words that it takes apart."""
    env = environment(
        home, _MCPEARL_COMPLETE="bash_complete", COMP_LINE=line, COMP_POINT=str(len(line)), **more
    )
    done = subprocess.run(
        LOADED_COMMAND, env=env, cwd=home, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_what_a_server_offers_is_completed(tmp_path: Path):
    with Serving("run", WEATHER, "--http", "--port", "0") as serving:
        assert in_line(f"mcpearl call {serving.url} fo", tmp_path) == ["plain,forecast"]
        assert in_line(f"mcpearl bench {serving.url} fo", tmp_path) == ["plain,forecast"]
        assert in_line(f"mcpearl prompt {serving.url} ", tmp_path) == ["plain,brief"]
        # bash replaces what is behind the last colon.
        assert in_line(f"mcpearl read {serving.url} weather://n", tmp_path) == ["plain,//now"]
        templates = in_line(f"mcpearl complete {serving.url} weather://", tmp_path)
        assert templates == ["plain,//{city}/now"]


def test_a_server_is_started_only_where_the_script_allows_it(tmp_path: Path):
    marks = tmp_path / "server.py", tmp_path / "command.py"
    for file in marks:
        started = f"open({str(file.with_suffix('.started'))!r}, 'w').close()"
        file.write_text(f"{WEATHER.read_text()}\n{started}\nif __name__ == '__main__': app.run()\n")
    command = {"command": sys.executable, "args": ["command.py"]}
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"own": command}}))
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"stranger": command}}))
    command_line = f"'{sys.executable} server.py'"
    for target in ("server.py", "server.py:app", command_line, "own", "stranger", ".mcp.json"):
        assert in_line(f"mcpearl call {target} fo", tmp_path) == []
    assert not list(tmp_path.glob("*.started"))
    for target in ("server.py", "own", "stranger", ".mcp.json"):
        found = in_line(f"mcpearl call {target} fo", tmp_path, _MCPEARL_STARTS="1")
        assert found == ["plain,forecast"]
    assert len(list(tmp_path.glob("*.started"))) == 2


def test_addresses_in_files_of_the_user_are_asked_and_those_of_the_directory_are_not(
    tmp_path: Path,
):
    (tmp_path / ".cursor").mkdir()
    with Serving("run", WEATHER, "--http", "--port", "0") as serving:
        for file, name in ((".cursor/mcp.json", "own"), (".mcp.json", "stranger")):
            (tmp_path / file).write_text(json.dumps({"mcpServers": {name: {"url": serving.url}}}))
        assert in_line("mcpearl call own fo", tmp_path) == ["plain,forecast"]
        assert in_line("mcpearl call stranger fo", tmp_path) == []
        assert in_line("mcpearl call .mcp.json fo", tmp_path) == []


HOSTILE = """
from mcpearl import Handler, Server, types

class Hostile(Handler):
    async def list_resources(self, cursor, ctx):
        names = ("$(touch b)", ";b", "`b`", " b", "\\nplain,b", "{1..9}", "{b,c}", "*", "~", "b-c", "{b}")
        uris = [f"good://{name}" for name in names]
        return types.ListResourcesResult(
            resources=[types.Resource(uri=uri, name="x") for uri in (*uris, "--good")]
        )

app = Server("hostile", handler=Hostile())
"""


def test_names_that_a_shell_would_not_take_as_they_are_are_left_out(tmp_path: Path):
    (tmp_path / "server.py").write_text(HOSTILE)
    with Serving("run", tmp_path / "server.py", "--http", "--port", "0") as serving:
        found = in_line(f"mcpearl read {serving.url} ", tmp_path)
    assert found == ["plain,good://b-c", "plain,good://{b}"]


def test_names_in_files_that_a_shell_would_not_take_as_they_are_are_left_out(tmp_path: Path):
    entries = {name: {"command": "true"} for name in ("we$(touch b)", "weather")}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    (tmp_path / "we;touch b.py").write_text("")
    assert in_line("mcpearl list we", tmp_path) == ["plain,weather"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_may_start_servers(shell: str):
    assert "_MCPEARL_STARTS=1" in mcpearl("completion", shell, "--start-servers").out
    assert "_MCPEARL_STARTS" not in mcpearl("completion", shell).out


def test_a_program_of_the_same_name_in_the_current_directory_is_not_run(tmp_path: Path):
    program = tmp_path / "mcpearl"
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PATH": PATH, "PS1": "> "}
    with Screen(program=SHELLS["bash"], cwd=tmp_path, **home) as screen:
        screen.type(f"{LOADED['bash']}; echo rea''dy\n")
        screen.until("ready")
        screen.type("./mcpearl comple\t")
        screen.until("completion ")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/mcp", "no-such-file.py"])
def test_a_server_that_cannot_be_reached_completes_nothing(target: str, tmp_path: Path):
    assert in_line(f"mcpearl call {target} fo", tmp_path) == []


def test_a_server_that_takes_long_to_answer_changes_nothing_of_the_line(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        line = f"mcpearl call {url} fo"
        asked = {"_MCPEARL_COMPLETE": "bash_complete", "COMP_LINE": line}
        with Screen(cwd=tmp_path, COMP_POINT=str(len(line)), **asked) as screen:
            taken, _ = listening.accept()
            with taken:
                taken.recv(1000)
                time.sleep(0.5)  # longer than a command waits before it draws a bar
            listening.close()
            assert screen.ended() == 0
    assert screen.raw.strip() == ""


@pytest.mark.parametrize(
    ("command", "begun", "whole"),
    [("call", "foreca", "forecast "), ("read", "weather://ma", "weather://map")],
)
@pytest.mark.parametrize("shell", INSTALLED)
def test_the_shell_completes_names_and_uris_of_a_server(
    shell: str, command: str, begun: str, whole: str, tmp_path: Path
):
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PATH": PATH, "PS1": "> "}
    with (
        Serving("run", WEATHER, "--http", "--port", "0") as serving,
        Screen(program=SHELLS[shell], cwd=tmp_path, columns=200, **home) as screen,
    ):
        screen.type(f"{LOADED[shell]}; echo rea''dy\n")
        screen.until("ready")
        screen.type(f"mcpearl {command} {serving.url} {begun}\t")
        screen.until(whole)
