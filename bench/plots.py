"""The plots of the report: horizontal bars from zero on a linear axis.

Beside each bar stand the figure and how many times better mcpearl is. A line over the bar goes from the
lower to the upper quartile of the rounds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.results import Estimate, Results
from bench.tables import GROUPS, NOISY, TIMES, number, ratio_is_noisy
from bench.targets import OWN, metric

# The plots have a background of their own, so that they read the same on a light and a dark page.
BACKGROUND, INK, QUIET = "#ffffff", "#24292f", "#57606a"
OWN_COLOR, PEER_COLOR, BARE_COLOR = "#b5179e", "#8d99ae", "#dde1e9"
BARE = ("floor", "echo")
ROOM = 2.0  # of the longest bar, for the text beside it
FIGURES = (
    ("stdio.svg", "Tool calls over stdio", ("stdio_pipelined", "stdio_single")),
    ("start.svg", "Start and memory", ("stdio_start", "stdio_rss")),
    ("http.svg", "Tool calls over HTTP", ("http_modern", "http_session")),
    ("http-streams.svg", "Progress and sessions over HTTP", ("http_steps", "http_sessions")),
    (
        "http-client.svg",
        "Own client on own server, over HTTP",
        ("http_client_single", "http_client_many"),
    ),
)


def draw(results: Results, folder: Path, titles: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Draw what was measured; yield the name of each file, what it shows, and its section."""
    for name, alt, metrics in FIGURES:
        if all(metric in results.rounds for metric in metrics):
            _draw(results, folder / name, metrics, titles)
            yield name, alt, GROUPS[metric(metrics[0]).group]


def _draw(results: Results, file: Path, metrics: tuple[str, ...], titles: dict[str, str]) -> None:
    from matplotlib import pyplot

    figure = drawn(results, metrics, titles)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)


def drawn(results: Results, metrics: tuple[str, ...], titles: dict[str, str]) -> Any:
    """Return a figure with a panel for each metric."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "mcpearl",
            "font.size": 9,
            "text.color": INK,
            "axes.edgecolor": QUIET,
            "axes.labelcolor": INK,
            "xtick.color": QUIET,
            "ytick.color": INK,
            "figure.facecolor": BACKGROUND,
            "axes.facecolor": BACKGROUND,
        }
    )
    from matplotlib import pyplot

    most = max(len(results.rounds[name]) for name in metrics)
    size = (10, 0.9 + 0.32 * most)
    figure, axes = pyplot.subplots(1, len(metrics), figsize=size, layout="constrained")
    for axis, name in zip(axes, metrics, strict=True):
        _draw_panel(axis, results, name, titles)
        axis.set_ylim(most - 0.5, -0.5)  # bars of the same height in all panels, from the top
    return figure


def _draw_panel(axis: Any, results: Results, name: str, titles: dict[str, str]) -> None:
    peers = [peer for peer in titles if peer in results.rounds[name]]
    figures = [Estimate.of(results.rounds[name][peer]) for peer in peers]
    longest = max(figure.high for figure in figures)
    axis.barh(
        [titles[peer] for peer in peers],
        [figure.median for figure in figures],
        color=[_color(peer) for peer in peers],
        height=0.7,
    )
    for place, (peer, figure) in enumerate(zip(peers, figures, strict=True)):
        axis.plot([figure.low, figure.high], [place, place], color=INK, linewidth=1)
        end = max(figure.high, figure.median) + longest * 0.02
        weight = "bold" if peer == OWN else "normal"
        axis.text(end, place, _label(results, name, peer, figure), va="center", weight=weight)
    axis.set_xlim(0, longest * ROOM)
    _strip(axis, longest)
    row = metric(name)
    better = "less" if row.lower_is_better else "more"
    axis.set_title(f"{row.title}, {row.unit} ({better} is better)", fontsize=9, loc="left")


def _strip(axis: Any, longest: float) -> None:
    """Keep the names and a few numbers under the bars, none under the text beside them."""
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.locator_params(axis="x", nbins=5)
    axis.set_xticks([tick for tick in axis.get_xticks() if tick <= longest])
    axis.xaxis.set_major_formatter(lambda tick, _: f"{tick:,.0f}")


def _color(peer: str) -> str:
    return OWN_COLOR if peer == OWN else BARE_COLOR if peer in BARE else PEER_COLOR


def _label(results: Results, name: str, peer: str, figure: Estimate) -> str:
    row = metric(name)
    text = (NOISY if figure.is_noisy(row.resolution) else "") + number(figure.median)
    ratio = results.ratio(name, OWN, [peer], lower_is_better=row.lower_is_better)
    if peer == OWN or ratio is None:
        return text
    mark = NOISY if ratio_is_noisy(ratio) else ""
    return f"{text}  (mcpearl: {mark}{number(ratio.median)} {TIMES})"
