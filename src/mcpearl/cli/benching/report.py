"""A run as one HTML page with plots: no script, nothing from elsewhere, light and dark."""

import time
from collections.abc import Callable
from html import escape
from typing import Any

from mcpearl.cli.benching.measures import Measures

_WIDTH, _HEIGHT = 760, 240
_LEFT, _BOTTOM, _TOP, _RIGHT = 64, 28, 24, 24

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --dim: #59636e; --line: #d1d9e0; --page: #ffffff;
  --one: #0969da; --two: #bc4c00; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --dim: #9198a1; --line: #3d444d;
  --page: #0d1117; --one: #58a6ff; --two: #f0883e; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  max-width: 800px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .2rem 1rem .2rem 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--dim); }
.dim { color: var(--dim); }
"""


def report_page(measures: Measures, title: str, conditions: dict[str, str]) -> str:
    """Return the page of a run.

    Args:
        measures: what was measured.
        title: what was called, and where.
        conditions: under which conditions, by name.
    """
    figures = measures.as_json()
    intervals = figures["intervals"]
    times = [each["at"] + measures.length / 2 for each in intervals]
    end = measures.duration
    rates = _plot(times, end, {"calls per second": [each["rate"] for each in intervals]}, _whole)
    latencies = _plot(
        times,
        end,
        {
            "p50": [each["p50_ms"] for each in intervals],
            "p99": [each["p99_ms"] for each in intervals],
        },
        lambda value: f"{value:g} ms",
    )
    when = time.strftime("%Y-%m-%d %H:%M")
    busy = _busy(measures)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title><style>{_STYLE}</style>
<h1>{escape(title)}</h1>
<p class="dim">{when}, {escape(", ".join(f"{name} {value}" for name, value in conditions.items()))}</p>
{_figures(figures)}{busy}
<h2>Calls per second</h2>{rates}
<h2>Time to the answer</h2>{latencies}
{_errors(figures)}
</html>
"""


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _busy(measures: Measures) -> str:
    if measures.busy < 0.9:
        return ""
    share = f"{measures.busy:.0%}"
    return f"<p>The load itself took {share} of a processor: the server may be able to do more.</p>"


def _figures(figures: dict[str, Any]) -> str:
    rows = {
        "calls": f"{figures['calls']:,}",
        "calls per second": f"{figures['rate']:,.0f}",
        "errors": f"{figures['errors']:,}",
        **{name: f"{value:,.2f} ms" for name, value in figures["latency_ms"].items()},
    }
    cells = "".join(
        f"<tr><th>{escape(name)}</th><td class=n>{escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


def _errors(figures: dict[str, Any]) -> str:
    if not figures["error_kinds"]:
        return ""
    rows = "".join(
        f"<tr><td class=n>{count:,}</td><td>{escape(kind)}</td></tr>"
        for kind, count in figures["error_kinds"].items()
    )
    return f"<h2>Errors</h2><table>{rows}</table>"


def _plot(
    times: list[float], end: float, series: dict[str, list[float]], label: Callable[[float], str]
) -> str:
    """Return lines over time as SVG; both axes are linear, and the values begin at zero."""
    top = _nice(max((value for values in series.values() for value in values), default=0.0))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def point(at: float, value: float) -> str:
        return f"{_LEFT + at / end * width:.1f},{_TOP + (1 - value / top) * height:.1f}"

    parts = []
    for step in range(5):
        value = top * step / 4
        y = _TOP + (1 - step / 4) * height
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="var(--line)"/><text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(label(value))}</text>"
        )
    for step in range(5):
        x = _LEFT + step / 4 * width
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{end * step / 4:.3g} s</text>'
        )
    for number, (name, values) in enumerate(series.items()):
        colour = ("var(--one)", "var(--two)")[number % 2]
        line = " ".join(point(at, value) for at, value in zip(times, values, strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(series) > 1:
            parts.append(
                f'<text x="{_LEFT + 10 + 60 * number}" y="{_TOP - 8}" style="fill:{colour}">'
                f"{escape(name)}</text>"
            )
    names = escape(", ".join(series))
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{names}">{"".join(parts)}</svg>'


def _nice(value: float) -> float:
    """Return a round number that is not below a value."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
