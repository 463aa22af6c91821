"""A gateway in a trace: it serves its client's request, and is the client of its own to the upstream."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from mcpearl import Client, Context, Gateway, McpError, Server, Telemetry, ToolError
from mcpearl.gateway.settings import UpstreamSettings
from tests.server.wire import ERAS
from tests.waiting import eventually


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """Where spans and measurements of this process go, with providers that only this test has."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    reader = InMemoryMetricReader()
    measuring = MeterProvider(metric_readers=[reader])
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: measuring)
    yield exporter, reader
    provider.shutdown()
    measuring.shutdown()


def make_behind(**options: Any) -> Server:
    app = Server("behind", **options)

    @app.tool
    async def greet(name: str) -> str:
        return f"hello {name}"

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("why?")).model

    @app.prompt
    def poem() -> str:
        return "roses"

    return app


def found(exporter: Any) -> dict[tuple[str, str], Any]:
    """The spans that have ended, by name and kind; the last of those that share both."""
    return {(each.name, each.kind.name): each for each in exporter.get_finished_spans()}


def points(reader: Any, name: str) -> list[Any]:
    """What was measured under a name."""
    return [
        point
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


def assert_one_trace(*chain: Any) -> None:
    for above, span in itertools.pairwise(chain):
        assert span.context.trace_id == above.context.trace_id
        assert span.parent.span_id == above.context.span_id, f"{span.name} is below {above.name}"


@pytest.mark.parametrize("outer", ERAS)
@pytest.mark.parametrize("inner", ERAS)
@pytest.mark.parametrize("how", ["gateway", "mount"])
async def test_every_hop_has_a_span_of_its_client_and_one_of_its_server(
    exported: tuple[Any, Any], outer: str, inner: str, how: str
) -> None:
    exporter, reader = exported
    behind = make_behind(telemetry=True, versions=(inner,))
    async with behind.serving("http", port=0) as url:
        front = Server("front", telemetry=True)
        if how == "gateway":
            settings = UpstreamSettings(protocol=inner)
            front = Gateway({"x": url}, telemetry=True, eager=True, upstreams=settings)
        else:
            front.mount("x", url)
        async with Client(front, telemetry=True, protocol=outer) as client:
            assert (await client.call_tool("x__greet", {"name": "Ada"})).text == "hello Ada"
            assert (await client.call_tool("x__fail")).is_error
            await client.get_prompt("x__poem")
    spans = found(exporter)
    for outside, inside in (
        ("tools/call x__greet", "tools/call greet"),
        ("tools/call x__fail", "tools/call fail"),
        ("prompts/get x__poem", "prompts/get poem"),
    ):
        chain = [
            *(spans[outside, "CLIENT"], spans[outside, "SERVER"]),
            *(spans[inside, "CLIENT"], spans[inside, "SERVER"]),
        ]
        assert chain[0].parent is None
        assert_one_trace(*chain)
        sent = chain[2].attributes
        assert sent["mcp.protocol.version"] == inner
        assert sent["jsonrpc.request.id"] == chain[3].attributes["jsonrpc.request.id"]
        assert sent["server.address"] == "127.0.0.1"
        assert sent["server.port"] == int(url.split(":")[2].split("/")[0])
    failed = spans["tools/call fail", "CLIENT"]
    assert failed.attributes["error.type"] == "tool_error"
    assert not failed.status.is_ok
    assert not failed.status.is_unset
    measured = [point.attributes for point in points(reader, "mcp.client.operation.duration")]
    upstream = [each for each in measured if each.get("server.address") == "127.0.0.1"]
    names = {each.get("gen_ai.tool.name", each.get("gen_ai.prompt.name")) for each in upstream}
    assert {"greet", "fail", "poem"} <= names


async def test_names_and_failures_of_an_upstream(exported: tuple[Any, Any]) -> None:
    """A name that a client makes up has no span of its own, and is not measured by itself."""
    exporter, reader = exported
    front = Gateway({"x": make_behind(telemetry=False)}, telemetry=True, eager=True)
    async with Client(front, telemetry=False) as client:
        with pytest.raises(McpError):
            await client.call_tool("x__made-up")
        await client.call_tool("x__greet", {"name": "Ada"})
    unknown = found(exporter)["tools/call", "CLIENT"]
    assert unknown.attributes["error.type"] == "-32602"
    assert unknown.attributes["rpc.response.status_code"] == "-32602"
    assert not [each for each in exporter.get_finished_spans() if "made-up" in each.to_json()]
    assert "made-up" not in reader.get_metrics_data().to_json()


async def test_contents_of_calls_to_an_upstream_are_exported_when_asked_for(
    exported: tuple[Any, Any],
) -> None:
    exporter, _ = exported
    behind, telemetry = make_behind(telemetry=False), Telemetry(contents=True)
    async with Client(Gateway({"x": behind}, telemetry=telemetry, eager=True)) as client:
        await client.call_tool("x__greet", {"name": "Ada"})
    sent = found(exporter)["tools/call greet", "CLIENT"].attributes
    assert sent["gen_ai.tool.call.arguments"] == '{"name":"Ada"}'
    assert "hello Ada" in sent["gen_ai.tool.call.result"]


async def test_a_gateway_that_exports_nothing_makes_no_span(exported: tuple[Any, Any]) -> None:
    """The trace of its client passes through it."""
    exporter, _ = exported
    front = Gateway({"x": make_behind(telemetry=True)}, telemetry=False, eager=True)
    async with Client(front, telemetry=True) as client:
        await client.call_tool("x__greet", {"name": "Ada"})
    spans = found(exporter)
    assert_one_trace(spans["tools/call x__greet", "CLIENT"], spans["tools/call greet", "SERVER"])
    assert ("tools/call greet", "CLIENT") not in spans


async def test_what_an_upstream_asks_passes_through_the_trace(exported: tuple[Any, Any]) -> None:
    exporter, _ = exported
    behind = make_behind(telemetry=True)
    settings = UpstreamSettings(protocol="2025-11-25")
    front = Gateway({"x": behind}, telemetry=True, eager=True, upstreams=settings)
    answer = {"sampling": lambda params: "because"}
    async with Client(front, telemetry=True, protocol="2025-11-25", **answer) as client:
        assert not (await client.call_tool("x__ask")).is_error
    asked = [each for each in exporter.get_finished_spans() if each.name.startswith("sampling/")]
    above, kinds = found(exporter)["tools/call ask", "SERVER"], []
    while asked:
        (below,) = [each for each in asked if each.parent.span_id == above.context.span_id]
        assert below.context.trace_id == above.context.trace_id
        kinds.append(below.kind.name)
        asked.remove(below)
        above = below
    assert kinds == ["CLIENT", "SERVER", "CLIENT", "SERVER"]


@pytest.mark.parametrize("rate", [0.0, 0.5])
async def test_what_is_not_sampled_stays_so_behind_a_gateway(
    monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    """A trace is exported whole or not at all, and its id is the same at every hop."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    exporter, ids = InMemorySpanExporter(), list[tuple[int, int]]()
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(rate)))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    behind = Server("behind", telemetry=True)

    @behind.tool
    async def look() -> str:
        context = trace.get_current_span().get_span_context()
        ids.append((context.trace_id, context.trace_flags & 1))
        return f"{context.trace_id:032x}"

    async def around(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            ids.append((trace.get_current_span().get_span_context().trace_id, -1))
        return await call_next()

    front = Gateway({"x": behind}, telemetry=True, eager=True, middleware=[around])
    async with Client(front, telemetry=False) as client:
        for _ in range(60):
            assert not (await client.call_tool("x__look")).is_error
    provider.shutdown()
    outside, inside = ids[::2], ids[1::2]
    assert [each[0] for each in outside] == [each[0] for each in inside]
    sampled = {each[0] for each in inside if each[1]}
    calls = [each for each in exporter.get_finished_spans() if each.name.startswith("tools/call")]
    assert {each.context.trace_id for each in calls} == sampled
    assert len(calls) == 3 * len(sampled)
    assert bool(sampled) == bool(rate)


async def test_the_connections_of_an_upstream_share_one_observer(
    exported: tuple[Any, Any],
) -> None:
    """Sessions of single clients with an upstream end, and nothing of them is kept."""
    _, reader = exported
    settings = UpstreamSettings(protocol="2025-11-25")
    front = Gateway(
        {"x": make_behind(telemetry=False)}, telemetry=True, eager=True, upstreams=settings
    )
    async with front.running():
        for _ in range(3):
            async with Client(front, telemetry=False, protocol="2025-11-25") as client:
                await client.call_tool("x__greet", {"name": "Ada"})
        (upstream,) = front.upstreams.values()
        observer: Any = upstream._watch.observer(None)
        await eventually(lambda: len(observer._observer._open) == 1)
    assert not observer._observer._open
    ended = points(reader, "mcp.client.session.duration")
    assert sum(point.count for point in ended) == 4
