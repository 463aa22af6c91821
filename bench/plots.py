"""The two figures of the report: calls over stdio, and start with memory."""

from collections.abc import Iterator
from pathlib import Path

from bench.results import Results

OWN, OTHER = "#b5179e", "#8d99ae"
FIGURES = (
    ("stdio.svg", "Tool calls over stdio, per second", ("stdio_pipelined", "stdio_single")),
    ("start.svg", "Start and memory", ("stdio_start", "stdio_rss")),
)
PANELS = {
    "stdio_pipelined": "pipelined, calls/s (more is better)",
    "stdio_single": "one at a time, calls/s (more is better)",
    "stdio_start": "start to initialize answer, ms (less is better)",
    "stdio_rss": "memory after start, MB (less is better)",
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
