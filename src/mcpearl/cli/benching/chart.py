"""A chart of a run in the terminal, drawn again and again while it goes on."""

import asyncio
import shutil
import sys
import time

from mcpearl.cli.benching.measures import Measures
from mcpearl.cli.output import colours

_HEIGHT = 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_INTERVAL = 0.25


async def draw_live(measures: Measures, title: str) -> None:
    """Draw the chart on stderr until it is cancelled, then take it away."""
    began = time.perf_counter()
    drawn = 0
    try:
        while True:
            await asyncio.sleep(_INTERVAL)
            room = shutil.get_terminal_size().columns - 1  # a line that wraps would be two
            lines = [
                _cut(each, room) for each in _lines(measures, title, time.perf_counter() - began)
            ]
            sys.stderr.write(f"\x1b[{drawn}A" if drawn else "")
            sys.stderr.write("".join(f"\x1b[2K{line}\n" for line in lines))
            sys.stderr.flush()
            drawn = len(lines)
    finally:
        if drawn:
            sys.stderr.write(f"\x1b[{drawn}A\x1b[J")
            sys.stderr.flush()


def _lines(measures: Measures, title: str, now: float) -> list[str]:
    complete = [each for each in measures.moments if each.at + each.length <= now]
    if not complete:
        return [title]
    columns = max(20, min(100, shutil.get_terminal_size().columns - 12))
    last = complete[-1]
    errors = sum(each.errors for each in complete)
    figures = (
        f"{last.rate:,.0f}/s  p50 {last.latencies.percentile(50) * 1000:.2f} ms  "
        f"p99 {last.latencies.percentile(99) * 1000:.2f} ms  errors {errors}"
    )
    left = max(0.0, measures.duration - now)
    rates = [each.rate for each in complete]
    return [f"{title}  {left:.0f} s left", *chart(rates, columns, _HEIGHT), figures]


def _cut(line: str, columns: int) -> str:
    """Cut a line at the last column. Lines with colours are part of the chart, which fits."""
    return line if "\x1b" in line else line[:columns]


def chart(values: list[float], columns: int, height: int) -> list[str]:
    """Return a bar chart of values from zero, with the axis at the left.

    Args:
        values: one for each bar; if there are more than columns, neighbours are averaged.
        columns: how wide it may be.
        height: how many lines it has.
    """
    if len(values) > columns:
        size = len(values) / columns
        values = [
            sum(part) / len(part)
            for n in range(columns)
            if (part := values[int(n * size) : max(int(n * size) + 1, int((n + 1) * size))])
        ]
    top = max(values, default=0.0) or 1.0
    paint = "\x1b[36m{}\x1b[0m" if colours(sys.stderr) else "{}"
    lines = []
    for row in range(height, 0, -1):
        label = f"{top:>8,.0f}" if row == height else f"{0:>8}" if row == 1 else " " * 8
        bars = "".join(_cell(value / top * height - (row - 1)) for value in values)
        lines.append(f"{label} │{paint.format(bars)}")
    return lines


def _cell(filled: float) -> str:
    return _EIGHTHS[max(0, min(8, round(filled * 8)))]
