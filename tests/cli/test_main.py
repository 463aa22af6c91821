"""The command as a whole: what is loaded, help, mistakes, exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import COMMAND, mcpearl


def modules_of(code: str) -> set[str]:
    """Return the modules that a program has loaded at its end."""
    program = (
        f"import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    return set(done.stderr.split())


def test_nothing_else_loads_the_command():
    loaded = modules_of("import mcpearl; mcpearl.Server; mcpearl.Client")
    assert "mcpearl.server.server" in loaded
    assert "mcpearl.cli" not in loaded
    assert "click" not in loaded


def test_help_loads_no_command_and_nothing_heavy():
    loaded = modules_of("from mcpearl.cli.main import main; main(['--help'])")
    assert "mcpearl.cli.main" in loaded
    assert not {"asyncio", "msgspec", "mcpearl.client.client", "mcpearl.server.server"} & loaded
    assert not {name for name in loaded if name.startswith("mcpearl.cli.commands.")}


def test_help_names_every_command_with_its_summary():
    done = mcpearl("--help")
    assert done.code == 0
    assert "List the tools, resources and prompts of a server." in done.out
    assert "Exit codes: 0 ok, 1 failed" in " ".join(done.out.split())


def test_the_version():
    from mcpearl import __version__

    assert mcpearl("--version").out == f"mcpearl {__version__}\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["lst"], "there is no command 'lst'. Did you mean list"),
        (["zzzzzz"], "See `mcpearl --help`"),
        (["ping", "x", "--timeoot", "3"], "Did you mean '--timeout'?"),
        (["install", "x", "--to", "y"], "No such option '--to'.\n"),
        (["ping"], "Missing argument 'TARGET'"),
        (["list", "x.py", "tolls"], "'tolls' is not one of"),
        (
            ["ping", "no-such-thing"],
            "there is no file, command or configured server 'no-such-thing'",
        ),
        (["ping", "no.py"], "no.py"),
    ],
)
def test_mistakes_are_named(line: list[str], says: str):
    done = mcpearl(*line)
    assert done.code in (2, 3)
    assert says in done.err
    assert "Traceback" not in done.err


def test_a_failure_as_json():
    done = mcpearl("ping", "http://127.0.0.1:1/mcp", "--json")
    assert done.code == 3
    assert '"code": 3' in done.out
    assert "cannot connect" in done.out


def test_a_reader_that_goes_away_is_no_reason_to_complain():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "--help"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.stderr == ""


def test_ctrl_c_while_the_command_is_loaded():
    """The signal comes when the first module of the command is imported."""
    program = (
        "import sys, signal, runpy\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mcpearl.cli': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from mcpearl.__main__ import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "mcpearl: interrupted\n")


def test_a_terminal_without_utf_8():
    done = mcpearl("doctor", "no-such-command x", PYTHONIOENCODING="latin-1")
    assert (done.code, done.out.splitlines()[0]) == (
        1,
        "? command: 'no-such-command' is not on the PATH",
    )
    assert "Traceback" not in done.err


def test_json_is_utf_8_everywhere(tmp_path: Path):
    (tmp_path / "s.py").write_text(
        "from mcpearl import Server\napp = Server('s')\n"
        "@app.tool\ndef t() -> str:\n    return '\u2713'\n",
        encoding="utf-8",
    )
    done = mcpearl("call", "s.py", "t", "--json", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    assert done.json["structuredContent"] == {"result": "\u2713"}
