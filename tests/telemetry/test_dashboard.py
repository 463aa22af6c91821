"""The dashboard and the alert rules, against what servers really export: metrics, labels, values."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcpearl import Client
from mcpearl.telemetry.prometheus import METRICS, render
from tests.redis_server import fresh_address
from tests.telemetry.test_metrics import OPERATION, make_app, read
from tests.transports.raw_http import serving

FOLDER = Path(__file__).parents[2] / "examples" / "operations"
OF_PROMETHEUS = {"job", "instance"}
SELECTOR = re.compile(r"\b((?:mcp_server|mcpearl|process)_[a-z_]+|up)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def panels(part: Any) -> list[tuple[str, str]]:
    """All queries of a dashboard, each with the text that names its series."""
    if isinstance(part, dict):
        own = [(part["expr"], part.get("legendFormat", ""))] if "expr" in part else []
        return own + [pair for value in part.values() for pair in panels(value)]
    return [pair for each in part for pair in panels(each)] if isinstance(part, list) else []


def queries() -> list[tuple[str, str]]:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    alerts = [(rule["expr"], " ".join(rule["annotations"].values())) for rule in rules]
    return panels(json.loads((FOLDER / "grafana.json").read_text())) + alerts


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[str]]]:
    """The labels of every metric of a live server, each with the values it had."""
    import asyncio

    return asyncio.run(live_page(tmp_path_factory.mktemp("receipts") / "log"))


async def live_page(receipts: Path) -> dict[str, dict[str, set[str]]]:
    app = make_app(telemetry=False, store=fresh_address(), receipts=receipts)

    @app.tool(task="required")
    async def long() -> str:
        return "done"

    async with serving(app, metrics="/metrics") as client:
        session = await client.initialize()
        stream = await session.get()
        for tool in ("work", "fail", "refuse", "no-such-tool"):
            await client.call(tool)
        async with Client(f"http://127.0.0.1:{client.port}/mcp", telemetry=False) as other:
            await other.call_tool("long")
            await other.get_prompt("greet")
        assert app.measuring is not None
        app.measuring.metrics.count("worker_starts")  # as a worker does when it begins
        samples = read(await render(app.measuring.snapshot()))
        stream.close()
    found: dict[str, dict[str, set[str]]] = {}
    for name, labels in samples:
        known = found.setdefault(name, {})
        for label, value in labels:
            known.setdefault(label, set()).add(value)
    found["up"] = {}  # made by Prometheus for each server that it scrapes
    return found


def test_every_query_names_metrics_and_labels_that_are_exported(
    exported: dict[str, dict[str, set[str]]],
) -> None:
    asked = queries()
    assert len(asked) > 25
    for query, legend in asked:
        selected = SELECTOR.findall(query)
        assert selected, query
        labels = set[str](OF_PROMETHEUS)
        for name, matchers in selected:
            assert name in exported, f"{name} of {query}"
            labels |= exported[name].keys()
            for label, _, _ in MATCHER.findall(matchers):
                assert label in exported[name].keys() | OF_PROMETHEUS, f"{label} of {query}"
            rest = MATCHER.sub("", matchers)
            assert not rest.strip(" ,"), f"what is {rest!r} in {query}"
        kept = set[str]()
        for group in GROUPING.findall(query):
            named = {label.strip() for label in group.split(",") if label.strip()}
            assert named <= labels, f"{named - labels} of {query}"
            kept |= named
        shown = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend))
        available = kept if kept else labels
        assert shown <= available | OF_PROMETHEUS, f"{legend} of {query}"


def test_a_server_that_is_away_beside_others_is_an_alert() -> None:
    """Its own metrics are gone, so that only what Prometheus says of it is left."""
    assert any(re.fullmatch(r'up\{job="mcp"\} == 0', query) for query, _ in queries())


def test_values_that_queries_compare_with_can_occur(
    exported: dict[str, dict[str, set[str]]],
) -> None:
    compared = 0
    for query, _ in queries():
        for name, matchers in SELECTOR.findall(query):
            for label, operator, wanted in MATCHER.findall(matchers):
                if label in OF_PROMETHEUS or operator in ("!=", "!~"):
                    continue
                values, each = exported[name][label], [wanted]
                if operator == "=~":
                    each = wanted.split("|")
                compared += 1
                for alternative in each:
                    possible = alternative in values or label == "error_type"
                    assert possible, f"{label}={alternative} of {query}"
                if label == "error_type":
                    assert values & set(each), f"none of {each} occurred, for {query}"
    assert compared >= 3


def test_a_label_that_is_not_exported_would_be_noticed(
    exported: dict[str, dict[str, set[str]]],
) -> None:
    assert "tool" not in exported[f"{OPERATION}_count"]
    assert exported[f"{OPERATION}_count"].keys() == {
        "mcp_method_name",
        "gen_ai_tool_name",
        "gen_ai_prompt_name",
        "error_type",
    }


def test_the_table_of_metrics_says_which_labels_they_have(
    exported: dict[str, dict[str, set[str]]],
) -> None:
    """Metrics with one label, or none, have exactly the one that the table says."""
    for metric in METRICS.values():
        if metric.kind != "histogram" and metric.name in exported:
            if metric.name == "mcpearl_answer_bytes_total":
                continue  # it has those of operations
            expected = {metric.label} if metric.label else set()
            assert exported[metric.name].keys() == expected, metric.name
