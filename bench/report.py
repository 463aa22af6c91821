"""What a run found, for the terminal, for the documentation and as JSON."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from bench import plots
from bench.environments import ROOT, node
from bench.results import MOST_SPREAD, Results
from bench.steal import MOST_TAKEN
from bench.tables import (
    COLUMNS,
    DISTURBED,
    NOISY,
    as_markdown,
    as_text,
    figure_tables,
    noise,
    target_table,
)
from bench.targets import Verdict, verdicts

INTRODUCTION = """\
# Benchmarks

mcpearl beside the official Python SDK (`mcp`), FastMCP and the TypeScript SDK, all measured in one
run on one machine. Absolute figures move with the machine; the ratios are what counts.
"""
METHOD = """\
## How it is measured

The work is `tools/call` of `async def add(a: int, b: int) -> int` with a structured result, and
every answer is checked. Everything is measured in rounds that go over all peers, in one order and then
in the other; further rounds compare mcpearl with its floors alone. A figure is the median of its
rounds; a ratio is the median of the ratios within each round. Where a virtual machine says how much of
its processors the host took, a measure of which that was much is repeated after a rest.

**The floor** is the least a Python process does for the same work, with no rule of the protocol: over
HTTP uvloop, httptools and msgspec, on stdio uvloop, msgspec and a task per call, for the start asyncio
and msgspec up to the answer to `initialize`. The floor of the client is a bare socket that sends a
prepared request to mcpearl's own server and reads the answer. "Bare ASGI echo" returns the same
requests as they are, on uvicorn.

**stdio.** "Pipelined" sends all calls in writes of 50 and reads all answers; "one at a time" waits for
each answer before the next call. The slow peers get 6,000 and 1,500 calls a round; the others get
60,000 and 6,000, so that a round is long enough to time and Node is warm. Memory is the resident set
of the server process. In memory, `mcp` is measured with its default client and with its legacy session.

**HTTP.** `wrk -t1 -c16` sends the calls. Every request is sent and its answer checked before the clock
starts; during the run, none may be refused and the answers must have the length of right ones. A peer
with several ways to serve (with sessions or without, plain JSON or events) is tried in each, and
measured in its fastest; mcpearl runs with its defaults. It and its floors run at the same time, and are
loaded for a second each in turn. Access logs are off, and every peer runs on
what a plain install brings. An own client is one process that calls a server in another, in the era in
which it is faster. Memory per session and stream is the growth of the server's resident set. The five
minutes are of eight clients that call, stream, subscribe and leave at a steady pace.

**Added to one call** is timed with processors that are kept awake by processes of the lowest priority: to
wake a sleeping one takes longer than the call. The floor of the gateway passes bytes on and does nothing
else.

**Frames** are the Python functions of mcpearl that one warm call enters, generators and coroutines
each time they are resumed. They are counted, not timed.
"""


def legend(results: Results) -> str:
    """How the tables are read."""
    return (
        "In brackets is the spread of the rounds: the distance between their quartiles, of the median. "
        f"`{NOISY}` marks what is too noisy to read: a spread of more than {MOST_SPREAD:.0%}, or a ratio "
        f"whose spread is larger than its distance from one. {noise(results)} `{DISTURBED}` marks a "
        f"figure in most rounds of which the machine's host took more than {MOST_TAKEN:.0%} of the "
        "processors, also after rests.\n\n"
        '"Of the floor" is mcpearl\'s figure as a share of the floor\'s; "to" a peer is how many times '
        "better mcpearl is. In the plots that number stands in brackets, and the line over the end of a "
        "bar goes from quartile to quartile.\n"
    )


def print_report(results: Results) -> None:
    """Print the tables on the terminal."""
    for title, table in figure_tables(results):
        print(f"\n{title}\n\n{as_text(table)}")
    found = verdicts(results)
    if found:
        print(f"\nTargets\n\n{as_text(target_table(found))}")
        print(f"\n{sum(verdict.met for verdict in found)} of {len(found)} targets met")
    print(noise(results))
    for what in results.missing:
        print(f"not measured: {what}")
    for what in results.wrong:
        print(f"WRONG: {what}")


def machine() -> dict[str, str | int]:
    """The machine, in words that do not identify it."""
    version = subprocess.run([node(), "--version"], capture_output=True, text=True, check=True)
    return {
        "cores": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "node": version.stdout.strip().removeprefix("v"),
    }


def versions() -> dict[str, str]:
    """The versions measured, from the pins."""
    pinned = dict(
        word.split("==")
        for name in ("mcp", "fastmcp")
        for word in (ROOT / "requirements" / f"bench-{name}.txt").read_text().split()
        if "==" in word
    )
    packages = json.loads((ROOT / "bench" / "ts" / "package.json").read_text())["dependencies"]
    return {
        "mcpearl": importlib.metadata.version("mcpearl"),
        "mcp": pinned["mcp"],
        "fastmcp": pinned["fastmcp"],
        "ts_v1": packages["@modelcontextprotocol/sdk"],
        "ts_v2": packages["@modelcontextprotocol/server"],
    }


def write_report(results: Results, folder: Path, command: str) -> None:
    """Write README.md, results.json and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    found = verdicts(results)
    run = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": command,
        "machine": machine(),
        "versions": versions(),
    }
    record = run | _record(results, found)
    (folder / "results.json").write_text(json.dumps(record, indent=2) + "\n")
    pictures = plots.draw(results, folder, COLUMNS)
    page = "\n".join([INTRODUCTION, *_head(run), *_body(results, found, list(pictures)), METHOD])
    (folder / "README.md").write_text(page)


def _record(results: Results, found: list[Verdict]) -> dict[str, Any]:
    return {
        "figures": {
            metric: {
                peer: dataclasses.asdict(figure)
                for peer in peers
                if (figure := results.get(metric, peer)) is not None
            }
            for metric, peers in results.rounds.items()
        },
        "rounds": results.rounds,
        "taken": results.taken,
        "targets": [dataclasses.asdict(verdict) | {"clear": verdict.is_clear} for verdict in found],
        "missing": results.missing,
    }


def _head(run: dict[str, Any]) -> list[str]:
    where = run["machine"]
    names = ", ".join(f"{COLUMNS[name]} {version}" for name, version in run["versions"].items())
    return [
        f"{run['date']}; {where['cores']} cores, {where['system']}, Python {where['python']}, "
        f"Node {where['node']}. {names}.\n",
        f"```\n{run['command']}\n```\n",
    ]


def _body(
    results: Results, found: list[Verdict], pictures: list[tuple[str, str, str]]
) -> list[str]:
    parts = ["## Figures\n", legend(results)]
    for title, table in figure_tables(results):
        parts += [f"### {title}\n", as_markdown(table) + "\n"]
        parts += [f"![{alt}]({name})\n" for name, alt, where in pictures if where == title]
    return [
        *parts,
        "## Targets\n",
        '"Within noise" is a target that lies between the quartiles of what was reached.\n',
        as_markdown(target_table(found)) + "\n",
        *(f"Not measured: {what}.\n" for what in results.missing),
    ]
