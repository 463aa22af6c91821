"""The plots of the benchmarks: bars from zero on a linear axis, so that lengths can be compared.

Real figures are drawn by matplotlib, and read back from its axes and from the file.
"""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench import plots
from bench.results import Results

if TYPE_CHECKING:  # loaded by the tests alone, and not wherever tests are collected
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle

TITLES = {"mcpearl": "mcpearl", "mcp": "mcp 2", "ts_v2": "TypeScript"}
METRICS = ("stdio_single", "stdio_start")
RESULTS = Results(
    {
        "stdio_single": {
            "mcpearl": [990.0, 1000.0, 1010.0],
            "mcp": [9.9, 10.0, 10.1],
            "ts_v2": [500.0] * 3,
        },
        "stdio_start": {
            "mcpearl": [200.0] * 3,
            "mcp": [1000.0] * 3,
            "ts_v2": [300.0, 400.0, 500.0],
        },
    }
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def axes() -> "dict[str, Axes]":
    return dict(zip(METRICS, plots.drawn(RESULTS, METRICS, TITLES).axes, strict=True))


def bars(axis: "Axes") -> "dict[str, Rectangle]":
    names = [label.get_text() for label in axis.get_yticklabels()]
    return dict(zip(names, axis.containers[0].patches, strict=True))


@pytest.mark.parametrize(
    ("metric", "lengths"),
    [
        ("stdio_single", {"mcpearl": 1000, "mcp 2": 10, "TypeScript": 500}),
        ("stdio_start", {"mcpearl": 200, "mcp 2": 1000, "TypeScript": 400}),
    ],
)
def test_bars_begin_at_zero_of_a_linear_axis(axes: "dict[str, Axes]", metric: str, lengths):
    axis = axes[metric]
    assert axis.get_xscale() == "linear"
    low, high = axis.get_xlim()
    assert low == 0 and high > max(lengths.values())
    found = bars(axis)
    assert {name: bar.get_width() for name, bar in found.items()} == lengths
    assert {bar.get_x() for bar in found.values()} == {0}
    assert min(axis.get_xticks()) == 0 and max(axis.get_xticks()) <= max(lengths.values())
    # On the page, a bar is as long as its figure says, compared with the others.
    axis.figure.canvas.draw()
    drawn = {name: bar.get_window_extent().width for name, bar in found.items()}
    longest = max(lengths, key=lengths.__getitem__)
    for name, length in lengths.items():
        assert drawn[name] / drawn[longest] == pytest.approx(length / lengths[longest])


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        (
            "stdio_single",
            ["1,000", "10  (mcpearl: 100 \u00d7)", "500  (mcpearl: 2 \u00d7)"],
        ),
        (
            "stdio_start",
            ["200", "1,000  (mcpearl: 5 \u00d7)", "~400  (mcpearl: ~2 \u00d7)"],
        ),
    ],
)
def test_each_bar_has_its_figure_and_the_ratio_beside_it(
    axes: "dict[str, Axes]", metric: str, labels: list[str]
):
    axis = axes[metric]
    assert [text.get_text() for text in axis.texts] == labels
    axis.figure.canvas.draw()
    inside = axis.get_window_extent()
    for text, bar in zip(axis.texts, bars(axis).values(), strict=True):
        place = text.get_window_extent()
        assert place.x0 >= bar.get_window_extent().x1
        assert place.x1 <= inside.x1


def test_the_file_reads_the_same_on_a_light_and_on_a_dark_page(tmp_path: Path):
    """It has an opaque background of its own, and every text stands out from it."""
    rounds = RESULTS.rounds["stdio_single"]
    results = Results({"stdio_pipelined": rounds, "stdio_single": rounds})
    written = [name for name, _, _ in plots.draw(results, tmp_path, TITLES)]
    assert written == ["stdio.svg"]
    root = ET.parse(tmp_path / "stdio.svg").getroot()
    first = next(root.iter(f"{SVG}path"))
    assert plots.BACKGROUND in first.attrib["style"] and "opacity" not in first.attrib["style"]
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert f"L {width:g} {height:g}" in " ".join(first.attrib["d"].split())
    for colour in (plots.INK, plots.QUIET):
        assert contrast(colour, plots.BACKGROUND) >= 4.5
    for colour in (plots.OWN_COLOR, plots.PEER_COLOR):
        assert contrast(colour, plots.BACKGROUND) >= 2.5


def contrast(one: str, other: str) -> float:
    """Return how much two colours differ, as WCAG 2 counts it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
