"""The documentation builds as a site: every page in its place, no dead link, every public name."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

import mcpearl
from mcpearl.cli.main import mcpearl as the_command

ROOT = Path(__file__).parents[2]
MODULES = ("mcpearl", "mcpearl.auth", "mcpearl.testing", "mcpearl.types")


@pytest.mark.timeout(600)  # half a minute of work, beside five other tests
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """It is built by the line of `make docs`, on a copy."""
    docs, site = tmp_path / "docs", tmp_path / "docs" / "_build" / "html"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("_build", "reference"))
    [line] = re.findall(
        r"^docs:.*\n\t\$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    done = subprocess.run(
        [sys.executable, *line.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = (site / "llms.txt").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.stem == "index" or f"({page.name})" in listed, f"{page.name} is in no section"
    entries_of_list = re.findall(r"^- \[([^]]+)\]\(([^)]+)\): (.+)$", listed, re.MULTILINE)
    assert ("Server", "reference/server.html") in [entry[:2] for entry in entries_of_list]
    assert len(entries_of_list) == len(re.findall(r"\]\(", listed)), (
        "a link in what is said of a page"
    )
    for title, link, about in entries_of_list:
        assert (site / link).is_file(), link
        assert len(about) < 220 and " = " not in about, f"{title}: {about}"
    text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    entries = set(re.findall(r'id="(mcpearl\.[\w.]+)"', text))
    for module in MODULES:
        assert {name for name in names_of(module) if name not in entries} == set(), module

    page = (site / "reference" / "command.html").read_text()
    assert [
        option for option in options_of_commands() if f'id="cmdoption-{option}"' not in page
    ] == []
    assert re.findall(r'class="reference external" href="([^"]+)"', page) == [], (
        "of what is no link"
    )
    types = re.findall(r'<dt [^>]*id="mcpearl\.Client">(.*?)</dt>', text, re.DOTALL)
    shown = re.sub(r"<[^>]+>", "", "".join(types))
    assert "timeout: float = 60.0" in " ".join(shown.split()), "parameters have their types"


def options_of_commands() -> list[str]:
    """Return all options of the command: `mcpearl-run-http`."""
    assert isinstance(the_command, click.Group)
    context = click.Context(the_command)
    return [
        f"mcpearl-{name}{option[1:] if option.startswith('--') else option}"
        for name in the_command.list_commands(context)
        if (command := the_command.get_command(context, name)) is not None
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden
        for option in each.opts
    ]


def names_of(module: str) -> set[str]:
    """Return the public names of a module; those of another module here are documented there."""
    loaded = importlib.import_module(module)
    found = set()
    for name in loaded.__all__:
        value = getattr(loaded, name)
        owner = getattr(value, "__module__", None) or ""
        place = next((each for each in MODULES[1:] if f"{owner}.".startswith(f"{each}.")), module)
        is_module = isinstance(value, type(mcpearl))
        if name != "__version__" and not is_module:
            found.add(f"{place}.{name}")
    return found
