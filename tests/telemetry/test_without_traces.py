"""Durations alone: without traces, nothing is said of traces, and all that is done is measured."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from mcpearl import Client, Context, Gateway, Server
from mcpearl.telemetry.options import Telemetry

DURATIONS = Telemetry(traces=False)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """What was measured. There is an SDK for traces, too."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    tracers = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    yield reader
    meters.shutdown()
    tracers.shutdown()


def measured(reader: InMemoryMetricReader, name: str) -> dict[Any, int]:
    """How often each method was measured under a name."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (point.attributes or {}).get("mcp.method.name"): getattr(point, "count", 0)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    }


def make_app(seen: list[dict[str, Any]]) -> Server:
    app = Server("behind", telemetry=False)

    @app.tool
    async def look(ctx: Context) -> str:
        seen.append(dict(ctx.meta or {}))
        return "done"

    return app


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_a_client_makes_up_no_trace(reader: InMemoryMetricReader, protocol: str) -> None:
    """A server behind it would take one that is not sampled as the reason to export nothing."""
    seen: list[dict[str, Any]] = []
    async with Client(make_app(seen), telemetry=DURATIONS, protocol=protocol) as client:
        await client.call_tool("look")
        await client.call_tool("look", meta={"traceparent": PARENT})
    assert [each.get("traceparent") for each in seen] == [None, PARENT]
    assert measured(reader, "mcp.client.operation.duration")["tools/call"] == 2


async def test_the_trace_of_a_client_passes_through_a_gateway(
    reader: InMemoryMetricReader,
) -> None:
    seen: list[dict[str, Any]] = []
    front = Gateway({"x": make_app(seen)}, telemetry=DURATIONS, eager=True)
    async with Client(front, telemetry=False) as client:
        await client.call_tool("x__look", meta={"traceparent": PARENT})
    assert [each.get("traceparent") for each in seen] == [PARENT]
    assert measured(reader, "mcp.server.operation.duration")["tools/call"] == 1


async def test_questions_are_measured_at_both_ends(reader: InMemoryMetricReader) -> None:
    app = Server("asks", telemetry=DURATIONS)
    metas: list[Any] = []

    @app.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("why?")).model

    def answer(params: Any) -> str:
        metas.append(params.meta)
        return "because"

    async with Client(app, telemetry=DURATIONS, protocol="2025-11-25", sampling=answer) as client:
        assert not (await client.call_tool("ask")).is_error
    assert not any("traceparent" in (meta or {}) for meta in metas)
    for name in ("mcp.client.operation.duration", "mcp.server.operation.duration"):
        assert measured(reader, name)["sampling/createMessage"] == 1, name
