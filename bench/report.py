"""What a run found, for the terminal, for the documentation and as JSON."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench import plots
from bench.environments import ROOT, node
from bench.results import Results
from bench.targets import METRICS, Verdict, metric, verdicts

TIMES = "\N{MULTIPLICATION SIGN}"
NONE = "\N{EN DASH}"
COLUMNS = {
    "mcpearl": "mcpearl",
    "mcp": "mcp",
    "fastmcp": "FastMCP",
    "ts_v1": "TypeScript v1",
    "ts_v2": "TypeScript v2",
    "msgspec": "msgspec alone",
    "echo": "bare ASGI echo",
    "stdio": "mcpearl on stdio",
    "open": "mcpearl without auth",
}
INTRODUCTION = """\
# Benchmarks

mcpearl beside the official Python SDK (`mcp`), FastMCP and the TypeScript SDK, all measured in one
run on one machine. Absolute figures move with the machine; the ratios are what counts.

The work is `tools/call` of `async def add(a: int, b: int) -> int` with a structured result, and
every answer is checked. "Pipelined" sends all calls in writes of 50 and reads all answers; "one at
a time" waits for each answer before the next call; both are the best of three rounds that take
turns between the peers. The slow peers get 6,000 and 1,500 calls a round; mcpearl and the
TypeScript SDK get 60,000 and 6,000, so that a round is long enough to time and Node is warm. Start
and memory are medians of seven starts; memory is the resident set of the server process. In memory,
`mcp` is measured with its default client and with its legacy session.

Over HTTP, `wrk -t1 -c16` sends the calls. Every request is asked and its answer checked before the
clock starts; during the run, none may be refused and the answers must have the length of right ones.
A peer with several ways to serve (with sessions or without, plain JSON or events) is tried in each,
and measured in its fastest; mcpearl runs as it is by default. Everybody's access log is off, and
everybody runs on what comes with a plain install. "Bare ASGI echo" gives the same requests back
as they are, on uvicorn set up as mcpearl does it. An own client is one process that calls a server in
another, in the era in which it is faster. Memory per session and stream is the growth of the server's
resident set. The five minutes are of eight clients that call, stream, follow and leave at a steady
pace.
"""


def number(figure: float | None) -> str:
    """A figure as people read it: three digits that matter."""
    if figure is None:
        return NONE
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:,.1f}"


def ratio(results: Results, name: str, peers: Sequence[str]) -> str:
    """How many times better mcpearl is than the best of some peers."""
    lower = metric(name).lower_is_better
    own = results.get(name, "mcpearl")
    found = [figure for peer in peers if (figure := results.get(name, peer)) is not None]
    if own is None or not found:
        return NONE
    times = min(found) / own if lower else own / max(found)
    return f"{times:.1f} {TIMES}"


def figure_table(results: Results) -> list[list[str]]:
    """One row per metric that was measured, peers and ratios as columns."""
    measured = [row for row in METRICS if row.name in results.figures]
    columns = [c for c in COLUMNS if any(c in results.figures[row.name] for row in measured)]
    head = ["", "unit", *(COLUMNS[c] for c in columns), "to mcp", "to TypeScript"]
    return [head] + [
        [
            row.title,
            row.unit,
            *(number(results.get(row.name, c)) for c in columns),
            ratio(results, row.name, ["mcp"]),
            ratio(results, row.name, ["ts_v1", "ts_v2"]),
        ]
        for row in measured
    ]


def target_table(found: list[Verdict]) -> list[list[str]]:
    """One row per target, with what was reached."""
    return [["target", "asked", "reached", ""], *(_target_row(verdict) for verdict in found)]


def _target_row(verdict: Verdict) -> list[str]:
    target, row = verdict.target, metric(verdict.target.metric)
    outcome = "met" if verdict.met else "MISSED"
    if target.limit is None:
        peers = " or ".join(COLUMNS[peer] for peer in target.peers)
        sign = ">" if target.strict else "≥"
        asked = f"{sign} {target.factor:g} {TIMES} {peers}"
        return [row.title, asked, f"{verdict.ratio:.2f} {TIMES}", outcome]
    sign = (
        ("<" if target.strict else "≤") if row.lower_is_better else (">" if target.strict else "≥")
    )
    asked = f"{sign} {number(target.limit)} {row.unit}"
    return [row.title, asked, f"{number(verdict.reached)} ({verdict.ratio:.2f} {TIMES})", outcome]


def as_text(table: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = []
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def as_markdown(table: list[list[str]]) -> str:
    rule = ["---", *("---:" for _ in table[0][1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [table[0], rule, *table[1:]])


def noise(results: Results) -> list[str]:
    """What should be measured again on a quieter machine."""
    return [
        f"{metric(name).title}, {COLUMNS[peer]}: the best round is {spread:.1f} {TIMES} the worst"
        for name, peer, spread in results.noisy()
    ]


def print_report(results: Results) -> None:
    """The tables on the terminal."""
    found = verdicts(results)
    print()
    print(as_text(figure_table(results)))
    if found:
        print()
        print(as_text(target_table(found)))
        print(f"\n{sum(verdict.met for verdict in found)} of {len(found)} targets met")
    for what in noise(results):
        print(f"noisy: {what}")
    for what in results.missing:
        print(f"not measured: {what}")
    for what in results.wrong:
        print(f"WRONG: {what}")


def machine() -> dict[str, str | int]:
    """The machine, in words that do not tell which one it is."""
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
        line.split("==")
        for name in ("mcp", "fastmcp")
        for line in (ROOT / "requirements" / f"bench-{name}.txt").read_text().split()
    )
    packages = json.loads((ROOT / "bench" / "ts" / "package.json").read_text())["dependencies"]
    return {
        "mcpearl": importlib.metadata.version("mcpearl"),
        "mcp": pinned["mcp"],
        "fastmcp": pinned["fastmcp"],
        "ts_v1": packages["@modelcontextprotocol/sdk"],
        "ts_v2": packages["@modelcontextprotocol/server"],
    }


def _noise_section(results: Results) -> list[str]:
    lines = noise(results)
    if not lines:
        return []
    head = "The machine was busy: these figures, and ratios made of them, are not to be relied on."
    return ["## Noise\n", f"{head}\n", "\n".join(f"- {line}" for line in lines) + "\n"]


def write_report(results: Results, folder: Path, command: str) -> None:
    """README.md, results.json and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    found, where, which = verdicts(results), machine(), versions()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    record = {
        "date": date,
        "command": command,
        "machine": where,
        "versions": which,
        "figures": results.figures,
        "rounds": results.rounds,
        "targets": [
            {
                "metric": verdict.target.metric,
                "factor": verdict.target.factor,
                "reference": verdict.reference,
                "peers": verdict.target.peers,
                "reached": verdict.reached,
                "ratio": verdict.ratio,
                "met": verdict.met,
            }
            for verdict in found
        ],
        "missing": results.missing,
    }
    (folder / "results.json").write_text(json.dumps(record, indent=2) + "\n")
    names = ", ".join(f"{COLUMNS[name]} {version}" for name, version in which.items())
    parts = [
        INTRODUCTION,
        f"{date}; {where['cores']} cores, {where['system']}, Python {where['python']}, "
        f"Node {where['node']}. {names}.\n",
        f"```\n{command}\n```\n",
        "## Figures\n",
        as_markdown(figure_table(results)) + "\n",
        *(f"![{alt}]({name})\n" for name, alt in plots.draw(results, folder, COLUMNS)),
        "## Targets\n",
        as_markdown(target_table(found)) + "\n",
        *_noise_section(results),
        *(f"Not measured: {what}.\n" for what in results.missing),
    ]
    (folder / "README.md").write_text("\n".join(parts))
