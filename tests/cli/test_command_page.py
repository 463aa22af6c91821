"""The examples of docs/command.md do what the page says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import environment

PAGE = (Path(__file__).parents[2] / "docs" / "command.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


SERVER = next(text for kind, text in BLOCKS if kind == "python")


def examples(block: str) -> list[tuple[str, str]]:
    """Return the command lines of a block, each with what it writes."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(line, output.rstrip()) for line, _, output in (part.partition("\n") for part in parts)]


@pytest.mark.parametrize("block", [text for kind, text in BLOCKS if kind == "console"])
def test_examples(tmp_path: Path, block: str):
    (tmp_path / "server.py").write_text(SERVER)
    for line, output in examples(block):
        words = shlex.split(line)
        assert words[0] == "mcpearl"
        done = subprocess.run(
            [sys.executable, "-m", "mcpearl", *words[1:]],
            cwd=tmp_path,
            env=environment(tmp_path / "home"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        expected = ".*".join(re.escape(part) for part in output.split("…"))
        assert re.fullmatch(expected, done.stdout.rstrip(), re.DOTALL), f"{line}\n{done.stdout}"


def lines_of_scripts() -> list[str]:
    text = "\n".join(text for kind, text in BLOCKS if kind == "sh")
    return [line for line in text.splitlines() if line.startswith("mcpearl")]


@pytest.mark.parametrize("command", sorted({shlex.split(line)[1] for line in lines_of_scripts()}))
def test_options_in_scripts_exist(command: str):
    helped = subprocess.run(
        [sys.executable, "-m", "mcpearl", command, "--help"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in lines_of_scripts():
        words = shlex.split(line, comments=True)
        if words[1] == command:
            for option in (word for word in words if word.startswith("-")):
                assert re.search(rf"(^|\s){option}\b", helped), f"{option} in {line}"


def test_every_command_is_on_the_page():
    import pkgutil

    from mcpearl.cli import commands

    elsewhere = {"console", "gateway", "bridge", "receipts", "cluster"}  # with pages of their own
    for module in pkgutil.iter_modules(commands.__path__):
        if module.name not in elsewhere:
            assert re.search(rf"\b{module.name}\b", PAGE), module.name


def test_no_command_has_an_option_twice():
    import pkgutil
    from importlib import import_module

    from mcpearl.cli import commands

    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        options = [each for p in import_module(module.name).command.params for each in p.opts]
        assert len(options) == len(set(options)), module.name


def test_exit_codes_on_the_page_are_those_of_the_command():
    from mcpearl.cli.exits import Exit

    listed = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert [int(each) for each in listed] == [code.value for code in Exit]
