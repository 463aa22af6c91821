"""OpenTelemetry: what a collector receives of clients and servers in processes of their own."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, McpError, Server, ToolError
from mcpearl.server.connection import ServerConnection
from tests.ports import free_port
from tests.server.wire import wire
from tests.telemetry.collector import Collector, collecting
from tests.waiting import eventually

SERVER = Path(__file__).with_name("traced_server.py")
CLIENT = """
import asyncio, sys
from mcpearl import Client, McpError

async def main():
    async with Client(sys.argv[1]) as client:
        print(await client.call_tool("forward", {"url": sys.argv[2]}))
        await client.call_tool("fail")
        print(await client.call_tool("long"))
        try:
            await client.call_tool("made-up")
        except McpError:
            pass

asyncio.run(main())
"""


def environment(collector: Collector, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        **more,
    }


@contextmanager
def served(name: str, settings: dict[str, str], *more: str) -> Iterator[tuple[str, list[str]]]:
    """A server in a process of its own: its address, and its log once it has ended."""
    port, log = free_port(), []
    process = subprocess.Popen(
        [sys.executable, str(SERVER), name, str(port), *more],
        env=settings,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp", log
    finally:
        process.terminate()
        log += (process.communicate(timeout=30)[1] or "").splitlines()


async def until_up(*urls: str) -> None:
    async def answers(url: str) -> bool:
        try:
            async with Client(url, connect_timeout=2, telemetry=False) as client:
                await client.ping()
        except Exception:
            return False
        return True

    for url in urls:
        await eventually(lambda url=url: answers(url))  # type: ignore[misc]


async def test_one_trace_from_a_client_through_a_server_to_another() -> None:
    """All processes are set up by the environment alone."""
    with collecting() as collector:
        settings = environment(collector)
        with served("first", settings) as (first, _), served("second", settings) as (second, log):
            await until_up(first, second)
            await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", CLIENT, first, second],
                env={**settings, "OTEL_SERVICE_NAME": "the-client"},
                check=True,
                timeout=60,
            )
        check_trace(collector)
        check_failures(collector)
        check_metrics(collector)
        check_log(collector, log)
        assert collector.services == {"first", "second", "the-client"}


ACROSS = """
import asyncio, sys
from mcpearl import Client

async def main():
    async with Client(sys.argv[1]) as client:
        assert (await client.call_tool("server__alone", {"number": 1})).text == "2"
    async with Client(sys.argv[2], sampling=lambda params: "because", protocol="2025-11-25") as client:
        assert not (await client.call_tool("ask")).is_error

asyncio.run(main())
"""


async def test_one_trace_through_a_gateway_to_an_isolated_tool() -> None:
    with collecting() as collector:
        settings = environment(collector)
        with served("server", settings) as (server, _):
            await until_up(server)
            with served("gateway", settings, server) as (gateway, _):
                await until_up(gateway)
                await asyncio.to_thread(
                    subprocess.run,
                    [sys.executable, "-c", ACROSS, gateway, server],
                    env={**settings, "OTEL_SERVICE_NAME": "the-client"},
                    check=True,
                    timeout=60,
                )
            await eventually(lambda: "in isolation" in {each["name"] for each in collector.spans})
        chain = [
            collector.named("tools/call server__alone", "CLIENT"),
            collector.named("tools/call server__alone", "SERVER"),
            collector.named("tools/call alone", "CLIENT"),
            collector.named("tools/call alone", "SERVER"),
            collector.named("in isolation", "INTERNAL"),
        ]
        assert_chain(chain)
        assert not chain[0]["parent"]
        check_upstream(collector, chain[2], chain[3])
        asked = [
            collector.named("tools/call ask", "CLIENT"),
            collector.named("tools/call ask", "SERVER"),
            collector.named("sampling/createMessage", "CLIENT"),
            collector.named("sampling/createMessage", "SERVER"),
        ]
        assert_chain(asked)
        for span in asked[2:]:
            assert span["mcp.method.name"] == "sampling/createMessage"
            assert span["mcp.protocol.version"] == "2025-11-25"
            assert span["network.protocol.name"] == "http"
        assert asked[2]["jsonrpc.request.id"] == asked[3]["jsonrpc.request.id"]
        check_questions(collector)
        assert collector.services == {"server", "gateway", "the-client"}


def check_upstream(collector: Collector, sent: dict[str, Any], served: dict[str, Any]) -> None:
    """What a gateway sends is a span of a client, and measured as such."""
    call = {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "alone",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2026-07-28",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    assert call.items() <= sent.items()
    assert sent["server.address"] == "127.0.0.1"
    assert sent["jsonrpc.request.id"] == served["jsonrpc.request.id"]
    server = {name: sent[name] for name in ("server.address", "server.port")}
    measured = [point[0] for point in collector.metrics["mcp.client.operation.duration"]]
    assert {**call, **server} in measured


def check_questions(collector: Collector) -> None:
    """A server that asks is the client of its question; sessions are measured on both sides."""
    for side in ("server", "client"):
        points = collector.metrics[f"mcp.{side}.operation.duration"]
        methods = {attributes["mcp.method.name"] for attributes, _, _ in points}
        assert "sampling/createMessage" in methods, f"as {side}"
        session = {
            "mcp.protocol.version": "2025-11-25",
            "network.transport": "tcp",
            "network.protocol.name": "http",
        }
        ended = [point[0] for point in collector.metrics[f"mcp.{side}.session.duration"]]
        assert any(session.items() <= attributes.items() for attributes in ended)
        assert not any("mcp.method.name" in attributes for attributes in ended)


def assert_chain(chain: list[dict[str, Any]]) -> None:
    for above, span in itertools.pairwise(chain):
        assert span["trace"] == above["trace"]
        assert span["parent"] == above["id"], f"{span['name']} is below {above['name']}"


def check_trace(collector: Collector) -> None:
    root = collector.named("tools/call forward", "CLIENT")
    assert not root["parent"]
    chain = [
        collector.named("tools/call forward", "SERVER"),
        collector.named("look around", "INTERNAL"),
        collector.named("tools/call work", "CLIENT"),
        collector.named("tools/call work", "SERVER"),
        collector.named("in a thread", "INTERNAL"),
    ]
    for above, span in zip([root, *chain], chain, strict=False):
        assert span["trace"] == root["trace"]
        assert span["parent"] == above["id"], f"{span['name']} is below {above['name']}"
    task = collector.named("in a task", "INTERNAL")
    assert task["trace"] == collector.named("tools/call long", "CLIENT")["trace"]
    server = chain[0]
    assert server["mcp.method.name"] == "tools/call"
    assert server["gen_ai.tool.name"] == "forward"
    assert server["gen_ai.operation.name"] == "execute_tool"
    assert server["mcp.protocol.version"] == "2026-07-28"
    assert server["network.transport"] == "tcp"
    assert server["network.protocol.name"] == "http"
    assert server["client.address"] == "127.0.0.1"
    assert server["jsonrpc.request.id"] == root["jsonrpc.request.id"]
    assert server["status"] == "UNSET"
    assert root["server.address"] == "127.0.0.1"
    assert root["server.port"] > 0
    assert "gen_ai.tool.call.arguments" not in server, "contents only when asked for"


def check_failures(collector: Collector) -> None:
    for kind in ("CLIENT", "SERVER"):
        failed = collector.named("tools/call fail", kind)
        assert (failed["error.type"], failed["status"]) == ("tool_error", "ERROR")
    unknown = collector.named("tools/call", "SERVER")
    assert unknown["error.type"] == unknown["rpc.response.status_code"] == "-32602"
    assert not unknown["message"], "what went wrong may repeat what a client sent"
    assert "gen_ai.tool.name" not in unknown, "a name that a client made up"


def check_metrics(collector: Collector) -> None:
    from mcpearl.telemetry.metrics import BOUNDS

    names = {
        f"mcp.{side}.{what}.duration" for side in ("server", "client") for what in ("operation",)
    }
    assert names | {"mcp.client.session.duration"} <= set(collector.metrics)
    points = collector.metrics["mcp.server.operation.duration"]
    for _, point, unit in points:
        assert tuple(point.explicit_bounds) == BOUNDS
        assert unit == "s"
    found = [attributes for attributes, _, _ in points]
    travels = {
        "mcp.protocol.version": "2026-07-28",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    call = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", **travels}
    assert {**call, "gen_ai.tool.name": "work"} in found
    assert {**call, "gen_ai.tool.name": "fail", "error.type": "tool_error"} in found
    failed = {"error.type": "-32602", "rpc.response.status_code": "-32602"}
    assert {**call, **failed, "gen_ai.tool.name": "_OTHER"} in found


def check_log(collector: Collector, log: list[str]) -> None:
    records = [json.loads(line) for line in log if line.startswith("{")]
    (working,) = (each for each in records if each["message"] == "working")
    span = collector.named("in a thread", "INTERNAL")
    assert working["trace_id"] == span["trace"]
    assert working["span_id"] == span["id"]
    assert working["method"] == "tools/call"
    assert working["tool"] == "work"
    assert working["request_id"]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Spans of this process, with a provider that only this test has."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def make_app(**options: Any) -> Server:
    app = Server("traced", **options)

    @app.tool
    async def greet(name: str) -> str:
        return f"hello {name}"

    app.add_resource("secret://1", lambda: "x", name="a")
    return app


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_a_call_of_a_mounted_tool_is_one_span_in_the_trace_of_its_caller(
    spans: Any, protocol: str
) -> None:
    app = Server("outer", telemetry=True)
    app.mount("part", make_app(telemetry=False))
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with Client(app, telemetry=False, protocol=protocol) as client:
        await client.call_tool("part__greet", {"name": "Ada"}, meta={"traceparent": trace})
    (call,) = [each for each in spans.get_finished_spans() if "greet" in each.name]
    assert call.name == "tools/call part__greet"
    assert format(call.context.trace_id, "032x") == trace.split("-")[1]
    assert format(call.parent.span_id, "016x") == trace.split("-")[2]


async def test_contents_are_exported_when_they_are_asked_for(spans: Any) -> None:
    from mcpearl import Telemetry

    app = make_app(telemetry=Telemetry(contents=True, metrics=False))
    async with Client(app, telemetry=False) as client:
        await client.call_tool("greet", {"name": "Ada"})
        await client.read_resource("secret://1")
    found = {each.name: each for each in spans.get_finished_spans()}
    call, read = found["tools/call greet"], found["resources/read"]
    assert json.loads(call.attributes["gen_ai.tool.call.arguments"]) == {"name": "Ada"}
    assert "hello Ada" in call.attributes["gen_ai.tool.call.result"]
    assert read.attributes["mcp.resource.uri"] == "secret://1"


async def test_the_span_of_an_agent_stands_for_the_call_that_it_makes(spans: Any) -> None:
    from opentelemetry import trace

    tracer = trace.get_tracer("an agent")
    app = make_app(telemetry=True)

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    def executing(tool: str) -> Any:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        return tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes)

    async with Client(app, telemetry=True) as client:
        with executing("greet"):
            await client.call_tool("greet", {"name": "Ada"})
            await client.call_tool("greet", {"name": "a second call"})
        with executing("fail"):
            assert (await client.call_tool("fail")).is_error
        with executing("another tool"):
            await client.call_tool("greet", {"name": "inside of it"})
    found = [each for each in spans.get_finished_spans() if "tools/call" in str(each.attributes)]
    names = [(each.name, each.kind.name) for each in found]
    assert names == [
        ("tools/call greet", "SERVER"),
        ("tools/call greet", "SERVER"),
        ("tools/call greet", "CLIENT"),
        ("execute_tool greet", "INTERNAL"),
        ("tools/call fail", "SERVER"),
        ("execute_tool fail", "INTERNAL"),
        ("tools/call greet", "SERVER"),
        ("tools/call greet", "CLIENT"),
    ]
    first, second, sent, greet, failing, fail_, *_ = found
    assert first.parent.span_id == greet.context.span_id
    assert second.parent.span_id == sent.context.span_id
    assert sent.parent.span_id == greet.context.span_id
    assert failing.parent.span_id == fail_.context.span_id
    for outer in (greet, fail_):
        assert outer.attributes["mcp.method.name"] == "tools/call"
        assert outer.attributes["mcp.protocol.version"] == "2026-07-28"
        assert outer.attributes["jsonrpc.request.id"]
        assert outer.status.status_code.name == "UNSET", "how it went is for the agent to say"


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_mounted_server_is_part_of_the_trace(spans: Any, version: str) -> None:
    from opentelemetry import trace

    outer, inner = Server("outer", telemetry=True), Server("inner", telemetry=False)

    @inner.tool
    async def work() -> str:
        with trace.get_tracer("inside").start_as_current_span("inside"):
            return "done"

    outer.mount("parts", inner)
    async with Client(outer, telemetry=True, protocol=version) as client:
        assert (await client.call_tool("parts__work")).text == "done"
    found = {(each.name, each.kind.name): each for each in spans.get_finished_spans()}
    chain = [
        found["tools/call parts__work", "CLIENT"],
        found["tools/call parts__work", "SERVER"],
        found["inside", "INTERNAL"],
    ]
    assert chain[0].parent is None
    for above, span in itertools.pairwise(chain):
        assert span.parent.span_id == above.context.span_id, f"{span.name} is below {above.name}"
        assert span.context.trace_id == above.context.trace_id


@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": 5, "baggage": ["a"]},
        {"traceparent": "nonsense"},
        {"traceparent": "00-" + "z" * 32 + "-" + "z" * 16 + "-01"},
        {"tracestate": "x" * 100_000, "baggage": "=" * 100_000},
        {"traceparent": None},
    ],
)
async def test_whatever_a_client_says_of_its_trace_is_harmless(spans: Any, meta: Any) -> None:
    async with Client(make_app(telemetry=True), telemetry=False) as client:
        result = await client.call_tool("greet", {"name": "Ada"}, meta=meta)
    assert result.text == "hello Ada"
    (span,) = (each for each in spans.get_finished_spans() if each.name == "tools/call greet")
    assert span.parent is None


@pytest.mark.parametrize("measured", [False, True])
async def test_what_is_not_sampled_is_passed_on_as_such(
    monkeypatch: pytest.MonkeyPatch, measured: bool
) -> None:
    """One in two, decided with the trace id that the span then has; children follow their parent."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.5)))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    app = Server("traced", telemetry=True)
    if measured:
        app.measure()

    @app.tool
    async def work() -> str:
        with provider.get_tracer("inside").start_as_current_span("inside"):
            context = trace.get_current_span().get_span_context()
            return f"{context.trace_id:x} {context.trace_flags.sampled}"

    async with Client(app, telemetry=False) as client:
        seen = [(await client.call_tool("work")).text.split() for _ in range(60)]
    provider.shutdown()
    calls = [each for each in exporter.get_finished_spans() if each.name == "tools/call work"]
    inside = [each for each in exporter.get_finished_spans() if each.name == "inside"]
    sampled = {trace_id for trace_id, is_sampled in seen if is_sampled == "True"}
    assert 10 < len(calls) < 50
    assert {f"{each.context.trace_id:x}" for each in calls} == sampled
    assert len(inside) == len(calls)
    assert len({trace_id for trace_id, _ in seen}) == 60
    if measured:
        numbers = app.measure().snapshot().calls["tools/call", "work", ""]
        assert sum(numbers[2:]) == 60, "calls with a span and calls without are counted alike"


async def test_durations_of_whatever_a_server_accepts_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from opentelemetry import metrics
    from opentelemetry.context import Context
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from mcpearl.telemetry.durations import Durations
    from mcpearl.telemetry.metrics import MAX_SERIES

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    durations = Durations("server", {})
    for number in range(MAX_SERIES + 500):
        error = None if number % 2 else str(1000 + number)
        what = "tools/call", f"tool-{number}"
        durations.call(0.1, what, error, ("2026-07-28", "http"), Context())
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    points = list(metric.data.data_points)
    assert sum(point.count for point in points) == MAX_SERIES + 500
    assert len(points) <= MAX_SERIES + 2
    errors = {point.attributes.get("error.type") for point in points}
    assert errors == {None, "_OTHER"}, "codes that an application makes up"
    provider.shutdown()


async def test_calls_that_are_not_sampled_mark_their_own_handlers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what is read together, notifications are no part of calls before them."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(1e-12)))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    app = Server("traced", telemetry=True)
    seen: list[tuple[str, bool]] = []

    def look(where: str) -> None:
        seen.append((where, trace.get_current_span().get_span_context().is_valid))

    @app.tool
    async def work() -> str:
        look("tool")
        return "done"

    @app.on_notification
    def heard(notice: Any, caller: Any) -> None:
        look("notification")

    async with wire(app, "2025-11-25") as client:
        message = {"method": "tools/call", "params": {"name": "work", "arguments": {}}}
        call = {"jsonrpc": "2.0", **message}
        notice = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
        frames = [{**call, "id": 1}, {**call, "id": 2}, notice, {**call, "id": 3}]
        (connection,) = app.connections
        assert isinstance(connection, ServerConnection)
        connection.received([json.dumps(each).encode() for each in frames])
        look("after")
        for id in (1, 2, 3):
            await client.answer_to(id)
    provider.shutdown()
    tool, outside = ("tool", True), [("notification", False), ("after", False)]
    assert [each for each in seen if each[0] != "tool"] == outside
    assert seen.count(tool) == 3


async def test_an_exporter_that_fails_or_is_away_costs_no_call(monkeypatch: Any) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("away")

        def on_end(self, span: Any) -> None:
            raise RuntimeError("away")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    async with Client(make_app(telemetry=True), telemetry=True) as client:
        assert (await client.call_tool("greet", {"name": "Ada"})).text == "hello Ada"
        with pytest.raises(McpError):
            await client.call_tool("nothing")


async def test_an_exporter_that_hangs_costs_no_call(monkeypatch: Any) -> None:
    """What does not fit into the SDK's queue while the exporter hangs is dropped there."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    hangs, goes_on = threading.Event(), threading.Event()

    class Hanging(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            hangs.set()
            goes_on.wait(60)
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    processor = BatchSpanProcessor(
        Hanging(), max_queue_size=8, schedule_delay_millis=1, max_export_batch_size=4
    )
    provider.add_span_processor(processor)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    try:
        async with Client(make_app(telemetry=True), telemetry=False) as client:
            for number in range(40):
                result = await client.call_tool("greet", {"name": str(number)})
                assert result.text == f"hello {number}"
            await eventually(hangs.is_set)
            assert not goes_on.is_set(), "all were answered while the exporter hung"
    finally:
        goes_on.set()
        provider.shutdown()


def test_without_its_sdk_nothing_of_opentelemetry_is_loaded() -> None:
    script = (
        "import asyncio, sys\n"
        "from mcpearl import Client, Server\n"
        "app = Server('plain')\n"
        "async def main():\n"
        "    async with Client(app) as client: await client.ping()\n"
        "asyncio.run(main())\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    settings = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", script], env=settings, check=True, timeout=60)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_what_is_answered_without_a_call_has_a_span(spans: Any, version: str) -> None:
    asked = "ping" if version == "2025-11-25" else "server/discover"
    async with wire(make_app(telemetry=True), version) as client:
        await client.ask(asked, traceparent=TRACE)
        await client.ask("no/such", traceparent=TRACE)
        await client.ask("tools/call", {"name": 5}, traceparent="x" * 100_000)
        client.raw(b"{not json")
        await client.ask(asked)
    found = spans.get_finished_spans()
    if version == "2025-11-25":
        assert found[0].name == "initialize"
        assert found[0].kind.name == "SERVER"
        found = found[1:]
    first, unknown, invalid, unread, last = found
    assert [first.name, last.name] == [asked, asked]
    for each in (first, unknown):
        assert format(each.context.trace_id, "032x") == TRACE.split("-")[1]
        assert format(each.parent.span_id, "016x") == TRACE.split("-")[2]
    assert first.attributes["mcp.method.name"] == asked
    assert first.attributes["jsonrpc.request.id"]
    assert first.status.is_unset
    assert first.start_time <= first.end_time
    assert unknown.name == "_OTHER", "a method that a client made up"
    assert unknown.attributes["error.type"] == "-32601"
    assert unknown.attributes["rpc.response.status_code"] == "-32601"
    assert not unknown.status.is_ok
    assert invalid.name == "tools/call"
    assert invalid.parent is None
    assert unread.attributes["error.type"] == "-32700"
    assert "jsonrpc.request.id" not in unread.attributes


async def test_parts_of_a_batch_that_are_no_calls_have_spans_too(spans: Any) -> None:
    app = make_app(telemetry=True)
    measuring = app.measure()
    request = {"jsonrpc": "2.0", "method": "ping"}
    batch = [
        {**request, "id": 1},
        {**request, "id": 2, "method": "no/such", "params": {"_meta": {"traceparent": TRACE}}},
        {**request, "id": 3, "method": "tools/list"},
        {"no": "message"},
    ]
    async with wire(app, "2025-03-26") as client:
        client.raw(batch)
        answers: Any = await client.next()
        assert len(answers) == 4
        await client.ask("ping")
    found = [each.name for each in spans.get_finished_spans()]
    assert found == ["initialize", "ping", "_OTHER", "_OTHER", "tools/list", "ping"]
    refused = spans.get_finished_spans()[2]
    assert format(refused.parent.span_id, "016x") == TRACE.split("-")[2]
    calls = measuring.snapshot().calls
    assert sum(calls["ping", "", ""][2:]) == 2
    assert sum(calls["_OTHER", "", "-32601"][2:]) == 1
    assert sum(calls["_OTHER", "", "-32600"][2:]) == 1
    assert sum(calls["tools/list", "", ""][2:]) == 1
