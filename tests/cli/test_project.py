"""`init`: a project that runs and passes at once. `doctor`: what is there, and why something is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import WEATHER, environment, mcpearl


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "my-first"
    made = mcpearl("init", folder, "--json").json
    assert made["package"] == "my_first"
    return folder


def test_the_tests_of_a_new_project_pass(project: Path):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "8 passed" in done.stdout, done.stdout + done.stderr


def test_what_to_do_next_begins_where_the_user_is(tmp_path: Path):
    elsewhere = mcpearl("init", "my first", cwd=tmp_path).out
    assert "cd 'my first'" in elsewhere
    (tmp_path / "here").mkdir()
    here = mcpearl("init", cwd=tmp_path / "here").out
    assert "  cd " not in here
    assert "mcpearl dev src/here/server.py" in here


def test_the_server_of_a_new_project_runs_and_has_no_problems(project: Path):
    assert mcpearl("call", "src/my_first/server.py", "add", "a=2", "b=3", cwd=project).out == "5\n"
    assert (
        mcpearl("inspect", "src/my_first/server.py", "--json", cwd=project).json["problems"] == []
    )


def test_a_new_project_is_installed_with_its_command(project: Path, tmp_path: Path):
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(tmp_path),
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(project)], check=True)
    command = f"{sys.executable} {tmp_path}/bin/my_first"
    assert mcpearl("call", command, "greet", "name=Ada", "--env", f"PYTHONPATH={tmp_path}").out == (
        "Hello Ada!\n"
    )


def test_nothing_is_overwritten(project: Path, tmp_path: Path):
    (tmp_path / "README.md").write_text("mine")
    done = mcpearl("init", tmp_path, "--name", "x")
    assert (done.code, "README.md exists already" in done.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert "cannot be the name" in mcpearl("init", tmp_path / "1", "--name", "1").err
    assert "cannot be the name" in mcpearl("init", tmp_path / "1", "--name", "class").err


def test_doctor_looks_at_this_installation_and_at_hosts(tmp_path: Path):
    folder = tmp_path / ".cursor"
    folder.mkdir()
    (folder / "mcp.json").write_text('{"mcpServers": {"lost": {"command": "no-such-command"}}}')
    (tmp_path / ".claude.json").write_text("{broken")
    done = mcpearl("doctor", home=tmp_path)
    assert done.code == 1
    for words in (
        "✓ msgspec: ",
        "✓ Cursor: 1 server in",
        "✗ Cursor, lost: its command 'no-such-command' is not there",
        "✗ Claude Code: ",
    ):
        assert words in done.out
    checks = mcpearl("doctor", "--json", home=tmp_path / "nobody").json["checks"]
    assert {each["state"] for each in checks} == {"ok", "absent"}


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("http://127.0.0.1:1/mcp", "✗ connection: 127.0.0.1 port 1: Connection refused"),
        ("http://no-such-host.invalid/mcp", "✗ name: no-such-host.invalid has no address"),
        ("no-such-command --x", "✗ command: 'no-such-command' is not on the PATH"),
        ("echo hello", "✗ stdout: it writes something else than messages: 'hello'"),
        ("true x", "✗ handshake: the server process `true x` exited with code 0 without answering"),
        ("nothing-at-all", "✗ target: there is no file"),
    ],
)
def test_doctor_says_why_a_server_does_not_answer(target: str, says: str):
    done = mcpearl("doctor", target)
    assert done.code == 1
    assert says in done.out
    assert "Traceback" not in done.err


def test_doctor_at_a_server_that_is_well():
    done = mcpearl("doctor", WEATHER)
    assert done.code == 0, done.out
    assert "✓ server: weather 1.0.0, version 2026-07-28" in done.out
