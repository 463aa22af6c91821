"""`mcpearl dev` and `mcpearl console` open their page in the browser, unless they are told not to."""

import sys
from pathlib import Path

import pytest

from tests.cli.running import WEATHER, Screen
from tests.waiting import eventually

BROWSER = """#!{python}
import sys, urllib.request
found = urllib.request.urlopen(sys.argv[1].partition("#")[0]).status
open({visited!r}, "a").write(f"{{found}} {{sys.argv[1]}}\\n")
"""
COMMANDS = [["dev", str(WEATHER), "--port", "0"], ["console", str(WEATHER)]]


def browser(folder: Path) -> tuple[Path, dict[str, str]]:
    """Make a browser that notes what it opens; return the note and what makes it the browser."""
    visited, program = folder / "visited", folder / "xdg-open"
    program.write_text(BROWSER.format(python=sys.executable, visited=str(visited)))
    program.chmod(0o700)
    return visited, {"BROWSER": f"{program} %s", "PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("words", COMMANDS, ids=["dev", "console"])
async def test_the_page_is_opened_with_its_key(words: list[str], tmp_path: Path) -> None:
    visited, env = browser(tmp_path)
    with Screen(*words, **env) as screen:
        screen.until("console")
        await eventually(lambda: visited.exists() and visited.read_text().endswith("\n"))
        [opened] = visited.read_text().splitlines()
        assert opened.startswith("200 http://127.0.0.1:") and "#key=" in opened
        assert opened.removeprefix("200 ") in screen.until("#key=")


@pytest.mark.parametrize("words", COMMANDS, ids=["dev", "console"])
def test_it_is_not_opened_if_that_is_not_wanted(words: list[str], tmp_path: Path) -> None:
    visited, env = browser(tmp_path)
    with Screen(*words, "--no-open", **env) as screen:
        screen.until("#key=")
        screen.type("\x03")
        screen.ended()
    assert not visited.exists()
