"""`bench`: load on a server, and what is said about it."""

import json
import random
import re
from pathlib import Path

import pytest

from mcpearl.cli.benching.chart import chart
from mcpearl.cli.benching.measures import Latencies, Measures
from mcpearl.cli.benching.report import report_page
from tests.cli.running import WEATHER, Screen, mcpearl

SHORT = ["-d", "0.5", "--warmup", "0.1"]


def test_percentiles_are_right_to_a_percent():
    numbers = random.Random(1)
    values = sorted(numbers.lognormvariate(-7, 1.5) for _ in range(20_000))
    found = Latencies()
    for value in values:
        found.add(value)
    for percent in (50, 90, 99, 99.9):
        exact = values[int(len(values) * percent / 100) - 1]
        assert found.percentile(percent) == pytest.approx(exact, rel=0.015)
    assert found.percentile(100) == values[-1]
    assert len(found.buckets) < 2048
    assert Latencies().percentile(50) == 0.0


def test_kinds_of_errors_are_bounded():
    measures = Measures(1.0)
    for n in range(1000):
        measures.failed(0.5, f"error {n}")
    assert len(measures.errors) == 21
    assert measures.as_json()["errors"] == 1000


def test_calls_are_counted(tmp_path: Path):
    report = tmp_path / "report.html"
    call = ["forecast", "city=Oslo", *SHORT, "-c", "4", "--report", report, "--json"]
    found = mcpearl("bench", WEATHER, *call).json
    assert found["calls"] > 10
    assert found["errors"] == 0
    assert sum(each["rate"] * 0.25 for each in found["intervals"]) == pytest.approx(
        found["calls"], rel=0.01
    )
    latency = found["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    page = report.read_text()
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_rate_is_kept():
    found = mcpearl("bench", WEATHER, "--rate", "40", *SHORT, "--json").json
    assert 0 < found["calls"] <= 21


def test_errors_are_told_apart_and_end_with_one():
    done = mcpearl("bench", WEATHER, "broken", *SHORT, "-c", "2", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["calls"] == 0
    ((kind, count),) = found["error_kinds"].items()
    assert kind.startswith("ToolError: Tool `broken` failed")
    assert count == found["errors"] > 0


def test_a_chart_on_a_terminal():
    with Screen("bench", WEATHER, "-d", "1.5", "--warmup", "0") as screen:
        screen.until("s left")
        assert screen.ended() == 0
    assert "│" in screen.text
    assert re.search(r"rate +[\d,]+ per second", screen.text)


def test_the_chart_begins_at_zero():
    lines = chart([0, 5, 10], 20, 2)
    assert [line[10:].replace("\x1b[36m", "").replace("\x1b[0m", "") for line in lines] == [
        "  █",
        " ██",
    ]
    assert len(chart([1.0] * 1000, 50, 1)[0]) <= 50 + 20


def test_text_of_a_server_is_not_markup_in_the_report():
    measures = Measures(1.0)
    measures.failed(0.1, "<script>alert(1)</script>")
    page = report_page(measures, "<b>title", {"a": "<i>"})
    assert "<script>" not in page
    assert "<b>" not in page
    assert "<i>" not in page


def test_the_chart_is_not_drawn_twice_on_a_narrow_terminal():
    with Screen("bench", WEATHER, "-d", "1", "--warmup", "0", columns=30, COLUMNS="30") as screen:
        assert screen.ended() == 0
    drawn = [line for line in screen.text.split("\n") if "/s  p50" in line]
    assert drawn
    assert max(map(len, drawn)) < 30


def test_ctrl_c_ends_it_with_the_figures_up_to_then(tmp_path: Path):
    report = tmp_path / "report.html"
    with Screen("bench", WEATHER, "-d", "300", "--warmup", "0.1", "--report", report) as screen:
        screen.until("p99")
        screen.type("\x03")
        assert screen.ended() == 130
    assert "of 300 seconds" in screen.text
    assert re.search(r"calls +[1-9][\d,]* in [\d.]+ s", screen.text)
    assert re.search(r"rate +[1-9]", screen.text)
    assert report.read_text().count("<svg") == 2


def test_a_run_that_ends_early_has_the_rate_of_what_it_was():
    measures = Measures(10.0)
    for n in range(60):
        measures.done(n / 100, 0.001)
    measures.end(0.6)
    assert len(measures.moments) == 3
    assert measures.as_json()["rate"] == 100
    assert [round(moment.rate) for moment in measures.moments] == [100, 100, 100]
