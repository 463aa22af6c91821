"""The tables of the report: figures by group, and targets.

A figure stands with its spread; what is too noisy to read is marked.
"""

from collections.abc import Iterator, Sequence

from bench.results import Estimate, Results
from bench.targets import METRICS, OWN, Metric, Verdict, metric

TIMES = "\N{MULTIPLICATION SIGN}"
NONE = "\N{EN DASH}"
NOISY = "~"
DISTURBED = "\N{DAGGER}"
COLUMNS = {
    OWN: "mcpearl",
    "floor": "floor",
    "echo": "bare ASGI echo",
    "mcp": "mcp",
    "fastmcp": "FastMCP",
    "mcp-proxy": "mcp-proxy",
    "ts_v1": "TypeScript v1",
    "ts_v2": "TypeScript v2",
    "msgspec": "msgspec alone",
    "stdio": "mcpearl on stdio",
    "open": "mcpearl without auth",
    "executor": "ProcessPoolExecutor",
    "threads": "threads",
    "bare": "bare processes",
    "dict": "a dictionary",
}
GROUPS = {
    "stdio": "stdio",
    "memory": "In memory",
    "http": "HTTP",
    "streams": "Sessions and streams over HTTP",
    "sockets": "TCP and WebSocket",
    "auth": "Authorization",
    "tasks": "Tasks",
    "gateway": "Gateway",
    "isolation": "Isolated tools",
    "limits": "Limits",
    "machines": "Many machines",
    "telemetry": "Telemetry, of everything off",
    "console": "Console, of none",
    "receipts": "Receipts",
    "components": "Components",
    "import": "Import",
    "frames": "Python frames of one call",
}
TYPESCRIPT = ("ts_v1", "ts_v2")
Table = list[list[str]]


def number(figure: float) -> str:
    """A figure with the digits that matter."""
    if figure == int(figure) or figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:,.1f}" if figure >= 10 else f"{figure:,.2f}"


def figure_tables(results: Results) -> Iterator[tuple[str, Table]]:
    """One titled table per group: a row per metric, a column per peer that was measured."""
    for group, title in GROUPS.items():
        rows = [row for row in METRICS if row.group == group and row.name in results.rounds]
        if rows:
            yield title, _figure_table(results, rows)


def _figure_table(results: Results, rows: list[Metric]) -> Table:
    peers = [peer for peer in COLUMNS if any(peer in results.rounds[row.name] for row in rows)]
    table = [["", "unit", *(COLUMNS[peer] for peer in peers), *RATIOS]]
    for row in rows:
        figures = (_figure(results, row, peer) for peer in peers)
        ratios = (_ratio(results, row, others) for others in RATIOS.values())
        table.append([row.title, row.unit, *figures, *ratios])
    return _without_empty_columns(table)


def _without_empty_columns(table: Table) -> Table:
    columns = zip(*table, strict=True)
    kept = [column for column in columns if any(cell != NONE for cell in column[1:])]
    return [list(row) for row in zip(*kept, strict=True)]


def _figure(results: Results, row: Metric, peer: str) -> str:
    figure = results.get(row.name, peer)
    if figure is None:
        return NONE
    if figure.median < row.resolution:
        return f"< {number(row.resolution)}"
    mark = NOISY if figure.is_noisy(row.resolution) else ""
    spread = f" ({figure.spread:.0%})" if figure.range else ""
    disturbed = DISTURBED if results.is_disturbed(row.name, peer) else ""
    return f"{mark}{number(figure.median)}{disturbed}{spread}"


def _ratio(results: Results, row: Metric, peers: Sequence[str]) -> str:
    """How mcpearl compares: its share of the floor, or how many times better it is than peers."""
    ratio = results.ratio(row.name, OWN, peers, lower_is_better=row.lower_is_better)
    if ratio is None:
        return NONE
    mark = NOISY if ratio_is_noisy(ratio) else ""
    if peers == RATIOS["of the floor"]:
        share = 1 / ratio.median if row.lower_is_better else ratio.median
        return f"{mark}{share:.0%}"
    return f"{mark}{number(ratio.median)} {TIMES}"


RATIOS = {"of the floor": ("floor",), "to mcp": ("mcp",), "to TypeScript": TYPESCRIPT}


def ratio_is_noisy(ratio: Estimate) -> bool:
    """Whether a ratio is too noisy to read, or cannot be distinguished from one."""
    return ratio.is_noisy() or not ratio.separates(1)


def noise(results: Results) -> str:
    """How much of a run is too noisy to read."""
    timed = [
        (metric(name), rounds)
        for name, peers in results.rounds.items()
        for rounds in peers.values()
        if metric(name).group != "frames"
    ]
    if not timed:
        return "Nothing was timed."
    repeated = [(row, rounds) for row, rounds in timed if len(rounds) > 1]
    noisy = sum(Estimate.of(rounds).is_noisy(row.resolution) for row, rounds in repeated)
    text = f"{noisy} of the {len(repeated)} figures with several rounds "
    text += f"{'is' if noisy == 1 else 'are'} too noisy to read."
    if single := len(timed) - len(repeated):
        text += f" {single} have one round, which says nothing about noise."
    return text


def target_table(found: list[Verdict]) -> Table:
    """One row per target, with what was reached."""
    return [["target", "asked", "reached", "quartiles", ""], *map(_target_row, found)]


def _target_row(verdict: Verdict) -> list[str]:
    target, row = verdict.target, metric(verdict.target.metric)
    outcome = "met" if verdict.met else "MISSED"
    if not verdict.is_clear:
        outcome += ", within noise"
    elif verdict.ratio.rounds == 1:
        outcome += ", one round"
    if target.limit is not None:
        signs = "<≤" if row.lower_is_better else ">≥"
        asked = f"{signs[not target.strict]} {number(target.limit)} {row.unit}"
        reached = verdict.reached
        return [row.title, asked, number(reached.median), _quartiles(reached), outcome]
    peers = " or ".join(COLUMNS[peer] for peer in target.peers)
    if row.lower_is_better and target.factor < 1:  # a peer that is better: so many times its figure
        asked, ratio = f"≤ {1 / target.factor:.3g} {TIMES} {peers}", verdict.ratio.inverse()
    else:
        asked = f"{'≥>'[target.strict]} {target.factor:g} {TIMES} {peers}"
        ratio = verdict.ratio
    return [row.title, asked, f"{number(ratio.median)} {TIMES}", _quartiles(ratio), outcome]


def _quartiles(estimate: Estimate) -> str:
    if not estimate.range:
        return NONE
    return f"{number(estimate.low)} to {number(estimate.high)}"


def as_text(table: Table) -> str:
    """A table for the terminal."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def as_markdown(table: Table) -> str:
    """A table for the page."""
    rule = ["---", *("---:" for _ in table[0][1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [table[0], rule, *table[1:]])
