"""How text is laid out on a terminal."""

from pathlib import Path

from mcpearl.cli.output import folded, width
from tests.cli.running import WEATHER, Screen


def test_lines_are_broken_between_words():
    assert folded("one two three four five six seven", 28) == "one two three four five six\nseven"
    assert folded("  · a tool that is not so good", 28, 2) == "  · a tool that is not so\n    good"
    assert folded("short\n\nagain", 26) == "short\n\nagain"


def test_what_is_copied_stays_whole():
    address = "http://127.0.0.1:8000/a-path-that-is-long"
    assert folded(f"it is at {address} now", 30) == f"it is at\n{address}\nnow"
    assert folded("and then `mcpearl list TARGET tools` shows", 30) == (
        "and then\n`mcpearl list TARGET tools`\nshows"
    )


def test_a_terminal_that_is_too_narrow_breaks_lines_itself():
    assert folded("one two three four five six seven", 10) == "one two three four five six seven"


def test_nothing_is_broken_within_a_word(tmp_path: Path):
    """What the command itself says fits a narrow terminal, but for paths."""
    lines = [
        ["list", WEATHER, "tools"],
        ["inspect", WEATHER],
        ["call", WEATHER, "forecast"],
        ["call", WEATHER, "forcast"],
        ["tasks", WEATHER, "get", "one"],
        ["doctor"],
    ]
    for words in lines:
        with Screen(*words, columns=50, COLUMNS="50", HOME=str(tmp_path)) as screen:
            screen.ended()
        for line in screen.text.splitlines():
            assert width(line) <= 50 or "/" in line, words


def test_no_line_is_empty_below_a_cell_that_is_empty():
    with Screen("inspect", WEATHER, columns=50, COLUMNS="50") as screen:
        assert screen.ended() == 0
    tools = screen.text.split("tools (")[1].split("\n\n")[0]
    assert "city" in tools and "trip.days" in tools


def test_an_address_in_the_log_stays_whole(tmp_path: Path):
    (tmp_path / "server.py").write_text("from mcpearl import Server\napp = Server('a')\n")
    dev = ["dev", "server.py", "--port", "0", "--no-open"]
    with Screen(*dev, cwd=tmp_path, columns=50, COLUMNS="50") as screen:
        screen.until("#key=")
        screen.type("\x03")
        assert screen.ended() == 0
    (line,) = [line for line in screen.text.splitlines() if "#key=" in line]
    assert line.strip().startswith("http://127.0.0.1:") and len(line) > 50
