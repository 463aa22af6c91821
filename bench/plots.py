"""The figures of the report: calls over stdio and HTTP, and start with memory."""

from collections.abc import Iterator
from pathlib import Path

from bench.results import Results

OWN, OTHER = "#b5179e", "#8d99ae"
FIGURES = (
    ("stdio.svg", "Tool calls over stdio, per second", ("stdio_pipelined", "stdio_single")),
    ("start.svg", "Start and memory", ("stdio_start", "stdio_rss")),
    ("http.svg", "Tool calls over HTTP, per second", ("http_modern", "http_session")),
    ("http-streams.svg", "Streams and sessions over HTTP", ("http_steps", "http_sessions")),
    ("http-client.svg", "Own client, own server", ("http_client_single", "http_client_many")),
)
PANELS = {
    "stdio_pipelined": "pipelined, calls/s (more is better)",
    "stdio_single": "one at a time, calls/s (more is better)",
    "stdio_start": "start to initialize answer, ms (less is better)",
    "stdio_rss": "memory after start, MB (less is better)",
    "http_modern": "2026-07-28, calls/s (more is better)",
    "http_session": "2025-11-25, calls/s (more is better)",
    "http_steps": "with 10 progress notifications, calls/s (more is better)",
    "http_sessions": "new sessions/s (more is better)",
    "http_client_single": "one at a time, calls/s (more is better)",
    "http_client_many": "16 at once, calls/s (more is better)",
}


def draw(results: Results, folder: Path, titles: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Draw what was measured; gives the name of each file and what it shows."""
    for name, alt, metrics in FIGURES:
        if all(metric in results.figures for metric in metrics):
            _draw(results, folder / name, metrics, titles)
            yield name, alt


def _draw(results: Results, file: Path, metrics: tuple[str, ...], titles: dict[str, str]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "mcpearl", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(metrics), figsize=(9, 2.4), sharey=True)
    for axis, metric in zip(axes, metrics, strict=True):
        figures = results.figures[metric]
        peers = [peer for peer in titles if peer in figures]
        values = [figures[peer] for peer in peers]
        bars = axis.barh(
            [titles[peer] for peer in peers],
            values,
            color=[OWN if peer == "mcpearl" else OTHER for peer in peers],
        )
        axis.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3)
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 4, max(values) * 6)  # room for the label of the longest bar
        axis.set_title(PANELS[metric], fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
