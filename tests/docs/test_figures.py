"""The figures of the README are those of the last run of the benchmarks."""

import json
import re
from pathlib import Path

import pytest
from bench.results import MOST_SPREAD

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FIGURES = json.loads((ROOT / "docs" / "benchmarks" / "results.json").read_text())["figures"]
NONE = "\N{EN DASH}"
VERSIONS = json.loads((ROOT / "docs" / "benchmarks" / "results.json").read_text())["versions"]

ROWS = {
    "tool calls over stdio, pipelined, per second": "stdio_pipelined",
    "tool calls over stdio, one at a time, per second": "stdio_single",
    "tool calls over HTTP, 16 connections, 2026-07-28": "http_modern",
    "tool calls over HTTP, 16 connections, in a session": "http_session",
    "own client to own server over HTTP, 16 at once": "http_client_many",
    "memory of an idle HTTP session, KB": "http_session_memory",
    "start to the answer to `initialize`, ms": "stdio_start",
    "memory of a stdio server after start, MB": "stdio_rss",
    "own client to own server in memory, per second": "memory_calls",
}


def written(figure: dict[str, float] | None) -> str:
    """Return a figure as the README has it: `~` before one that is too noisy to read."""
    if figure is None:
        return NONE
    median = figure["median"]
    noisy = figure["high"] - figure["low"] > MOST_SPREAD * median
    return ("~" if noisy else "") + (f"{median:.1f}" if median < 10 else f"{median:,.0f}")


@pytest.mark.parametrize(("row", "metric"), ROWS.items())
def test_a_row_has_what_was_measured(row: str, metric: str):
    [cells] = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", README, re.MULTILINE)
    of = FIGURES[metric]
    own, mcp, fastmcp, *both = (
        written(of.get(name)) for name in ("mcpearl", "mcp", "fastmcp", "ts_v1", "ts_v2")
    )
    typescript = " / ".join(both) if both != [NONE, NONE] else NONE
    assert cells.split(" | ") == [own, mcp, fastmcp, typescript]


def test_every_row_and_version_is_known():
    [table] = re.findall(r"^\| \| mcpearl \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()} == set(ROWS)
    assert f"| mcp {VERSIONS['mcp']} | FastMCP {VERSIONS['fastmcp']} |" in README


def test_how_many_times_the_calls_of_the_official_sdk():
    """The range holds for every measure of calls per second in which both are."""
    [(least, most)] = re.findall(r"(\d+) to (\d+) times the calls per second", README)
    calls = [name for name, of in FIGURES.items() if re.match("(stdio|http|memory|ws)_", name)]
    ratios = [
        FIGURES[name]["mcpearl"]["median"] / FIGURES[name]["mcp"]["median"]
        for name in calls
        if {"mcpearl", "mcp"} <= FIGURES[name].keys()
        and name not in ("stdio_start", "stdio_rss", "http_session_memory")
    ]
    assert len(ratios) >= 10
    assert int(least) <= min(ratios)
    assert int(most) <= max(ratios) * 1.02
