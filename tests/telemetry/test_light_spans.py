"""Spans of sampled calls: what is exported is what the SDK would have exported."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased

from mcpearl import Client, Server, ToolError
from mcpearl.server.connection import ServerConnection
from mcpearl.telemetry.light_spans import LightSpan
from tests.server.wire import wire

ALMOST_ALL = 1 - 1e-12
Provide = Callable[..., tuple[TracerProvider, InMemorySpanExporter]]


@pytest.fixture
def provide(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provide]:
    """What makes a provider that only this test has."""
    made: list[TracerProvider] = []

    def make(
        sampler: Sampler, limits: SpanLimits | None = None
    ) -> tuple[TracerProvider, InMemorySpanExporter]:
        exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, span_limits=limits, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
        made.append(provider)
        return provider, exporter

    yield make
    for provider in made:
        provider.shutdown()


def make_app(seen: list[trace.Span], touch: Callable[[trace.Span], None] | None = None) -> Server:
    app = Server("traced", telemetry=True)

    @app.tool
    def work() -> str:
        span = trace.get_current_span()
        seen.append(span)
        if touch is not None:
            touch(span)
        return threading.current_thread().name

    @app.tool
    async def fail() -> str:
        seen.append(trace.get_current_span())
        raise ValueError("no")

    return app


async def call_both(app: Server) -> None:
    async with Client(app, telemetry=False, protocol="2025-11-25") as client:
        await client.call_tool("work")
        await client.call_tool("fail")


def read(exporter: InMemorySpanExporter, name: str) -> Any:
    (span,) = (each for each in exporter.get_finished_spans() if each.name == name)
    return span


def described(span: Any) -> dict[str, Any]:
    """Return all that is exported of a span but its ids and times."""
    return {
        "name": span.name,
        "kind": span.kind,
        "parent": span.parent,
        "attributes": dict(span.attributes),
        "events": span.events,
        "links": span.links,
        "status": (span.status.status_code, span.status.description),
        "scope": span.instrumentation_scope,
        "flags": span.context.trace_flags,
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
    }


async def test_a_light_span_is_exported_as_one_of_the_sdk(provide: Provide) -> None:
    found = []
    for sampler in (ParentBased(TraceIdRatioBased(ALMOST_ALL)), ParentBased(ALWAYS_ON)):
        provider, exporter = provide(sampler)
        seen: list[trace.Span] = []
        await call_both(make_app(seen))
        assert [isinstance(each, LightSpan) for each in seen] == [
            sampler._root is not ALWAYS_ON
        ] * 2
        spans = [read(exporter, f"tools/call {name}") for name in ("work", "fail")]
        assert all(each.resource is provider.resource for each in spans)
        assert all(each.start_time < each.end_time for each in spans)
        for each, exported in zip(seen, spans, strict=True):
            assert each.get_span_context().span_id == exported.context.span_id
        found.append([described(each) for each in spans])
    assert found[0] == found[1]


async def test_a_span_that_a_handler_touches_becomes_one_of_the_sdk(provide: Provide) -> None:
    """In a thread of its own, which draws no id of another span."""
    _, exporter = provide(ParentBased(TraceIdRatioBased(ALMOST_ALL)))

    def touch(span: trace.Span) -> None:
        span.set_attribute("own", [1, 2])
        span.set_attributes({"more": True})
        span.add_event("happened", {"n": 1})
        span.add_link(trace.SpanContext(5, 6, is_remote=True))
        span.record_exception(ValueError("handled"))
        span.update_name("renamed")
        assert span.is_recording()
        assert span.attributes["mcp.method.name"] == "tools/call"  # type: ignore[attr-defined]

    seen: list[trace.Span] = []
    await call_both(make_app(seen, touch))
    span = read(exporter, "renamed")
    assert span.attributes["own"] == (1, 2)
    assert span.attributes["more"] is True
    assert span.attributes["gen_ai.tool.name"] == "work"
    assert [each.name for each in span.events] == ["happened", "exception"]
    assert [each.context.span_id for each in span.links] == [6]
    assert span.context == seen[0].get_span_context()
    assert span.parent is None
    assert span.start_time < span.events[0].timestamp < span.end_time
    assert not seen[0].is_recording()
    seen[0].end()
    assert read(exporter, "renamed") is span, "a span ends once"


async def test_processors_and_limits_that_look_at_spans_get_those_of_the_sdk(
    provide: Provide,
) -> None:
    class Marks(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            span.set_attribute("marked", True)

    ratio = ParentBased(TraceIdRatioBased(ALMOST_ALL))
    provider, exporter = provide(ratio)
    seen: list[trace.Span] = []
    app = make_app(seen)
    async with Client(app, telemetry=False) as client:
        await client.call_tool("work")
        provider.add_span_processor(Marks())
        await client.call_tool("work")
    assert [isinstance(each, LightSpan) for each in seen] == [True, False]
    calls = [each for each in exporter.get_finished_spans() if each.name == "tools/call work"]
    assert ["marked" in (each.attributes or {}) for each in calls] == [False, True]

    _, exporter = provide(ratio, SpanLimits(max_span_attribute_length=3))
    await call_both(make_app(seen))
    assert read(exporter, "tools/call work").attributes["gen_ai.tool.name"] == "wor"


async def test_a_sampler_of_the_application_is_asked(provide: Provide) -> None:
    class Tags(TraceIdRatioBased):
        def should_sample(self, *args: Any, **named: Any) -> Any:
            found = super().should_sample(*args, **named)
            found.attributes = {**(found.attributes or {}), "tagged": True}
            return found

    _, exporter = provide(Tags(ALMOST_ALL))
    seen: list[trace.Span] = []
    await call_both(make_app(seen))
    assert read(exporter, "tools/call work").attributes["tagged"] is True


@pytest.mark.parametrize(
    "missing",
    ["resource", "_instrumentation_scope", "_span_limits", "_tracer_metrics", "_is_enabled"],
)
async def test_with_another_sdk_all_spans_are_the_sdks_own(
    provide: Provide, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """An SDK whose tracers lack what light spans are made with, as older ones do."""
    provider, exporter = provide(ParentBased(TraceIdRatioBased(ALMOST_ALL)))
    get_tracer = provider.get_tracer

    class OtherTracer:
        """A tracer of the SDK without one of its members."""

        def __init__(self, *given: Any) -> None:
            self.__dict__["_own"] = get_tracer(*given)

        def __getattr__(self, name: str) -> Any:
            if name == missing:
                raise AttributeError(name)
            return getattr(self._own, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(self._own, name, value)

    monkeypatch.setattr(trace, "get_tracer", OtherTracer)
    seen: list[trace.Span] = []
    await call_both(make_app(seen))
    assert [isinstance(each, LightSpan) for each in seen] == [False, False]
    assert read(exporter, "tools/call work").status.is_unset
    assert not read(exporter, "tools/call fail").status.is_ok


EACH = 100
NAMES = ("passes", "looks", "fails", "waits", "leaves")


class Mixture:
    """A server with tools that treat their span in different ways, and what they saw."""

    def __init__(self) -> None:
        self.app = app = Server("traced", telemetry=True)
        self.metrics = app.measure().metrics
        self.seen: dict[str, list[trace.SpanContext]] = {}
        self.tasks: list[asyncio.Task[None]] = []

        @app.tool
        async def passes() -> str:
            return "done"

        @app.tool
        async def looks() -> str:
            self.look("looks")
            trace.get_current_span().set_attribute("own", 1)
            return "done"

        @app.tool
        async def fails() -> str:
            self.look("fails")
            raise ToolError("no")

        @app.tool
        async def waits() -> str:
            await asyncio.sleep(0)
            self.look("waits")
            return "done"

        @app.tool
        async def leaves() -> str:
            async def after() -> None:
                self.look("leaves")

            self.tasks.append(asyncio.create_task(after()))
            return "done"

    def look(self, name: str) -> None:
        self.seen.setdefault(name, []).append(trace.get_current_span().get_span_context())

    def check(self, exporter: InMemorySpanExporter) -> dict[str, set[int]]:
        """Compare what was counted, exported and seen; return the ids of the sampled requests by tool."""
        counted, requests = self.metrics.snapshot().calls, {}
        for name in NAMES:
            error = "tool_error" if name == "fails" else ""
            assert sum(counted["tools/call", name, error][2:]) == EACH
            spans = [span for span in exporter.get_finished_spans() if name in span.name]
            assert 0 < len(spans) < EACH
            assert {span.attributes["gen_ai.tool.name"] for span in spans} == {name}
            assert all(span.parent is None and span.start_time < span.end_time for span in spans)
            assert all(("own" in span.attributes) == (name == "looks") for span in spans)
            assert {span.attributes.get("error.type") for span in spans} == {error or None}
            requests[name] = {int(span.attributes["jsonrpc.request.id"]) for span in spans}
            assert len(requests[name]) == len(spans)
            if name in self.seen:
                assert len(self.seen[name]) == EACH
                sampled = {one.span_id for one in self.seen[name] if one.trace_flags.sampled}
                assert sampled == {span.context.span_id for span in spans}
        return requests


async def test_sampled_calls_among_others_have_the_span_that_their_handlers_see(
    provide: Provide,
) -> None:
    """Of calls that are read together, whether they look at their span, fail, wait, or leave a task."""
    _, exporter = provide(ParentBased(TraceIdRatioBased(0.5)))
    mixture = Mixture()
    async with wire(mixture.app, "2025-11-25") as client:
        (connection,) = mixture.app.connections
        assert isinstance(connection, ServerConnection)
        connection.received(
            [
                msgspec.json.encode(
                    {
                        "jsonrpc": "2.0",
                        "id": number,
                        "method": "tools/call",
                        "params": {"name": NAMES[number % len(NAMES)], "arguments": {}},
                    }
                )
                for number in range(EACH * len(NAMES))
            ]
        )
        for number in range(EACH * len(NAMES)):
            await client.answer_to(number)
        await asyncio.gather(*mixture.tasks)
        for name, requests in mixture.check(exporter).items():
            assert {NAMES[number % len(NAMES)] for number in requests} == {name}


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_sampled_calls_over_http_have_the_span_that_their_handlers_see(
    version: str, provide: Provide
) -> None:
    _, exporter = provide(ParentBased(TraceIdRatioBased(0.5)))
    mixture = Mixture()
    async with (
        mixture.app.serving("http", port=0) as url,
        Client(url, telemetry=False, protocol=version) as client,
    ):
        for _ in range(EACH):
            await asyncio.gather(*(client.call_tool(name) for name in NAMES))
        await asyncio.gather(*mixture.tasks)
        mixture.check(exporter)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_spans_that_handlers_make_over_http_are_sampled_with_their_call(
    version: str, provide: Provide
) -> None:
    """A span in a call without one begins no trace of its own."""
    provider, exporter = provide(ParentBased(TraceIdRatioBased(0.3)))
    tracer = provider.get_tracer("own")
    app = Server("traced", telemetry=True)

    @app.tool
    async def work() -> str:
        with tracer.start_as_current_span("inner"):
            return "done"

    async with (
        app.serving("http", port=0) as url,
        Client(url, telemetry=False, protocol=version) as client,
    ):
        for _ in range(EACH):
            await client.call_tool("work")
    spans = exporter.get_finished_spans()
    calls = {span.context.span_id for span in spans if span.name == "tools/call work"}
    parents = [span.parent and span.parent.span_id for span in spans if span.name == "inner"]
    assert 0 < len(calls) < EACH
    assert set(parents) == calls
    assert len(parents) == len(calls)


@pytest.mark.parametrize("is_set", [False, True], ids=["empty context", "a variable is set"])
async def test_calls_over_http_have_contexts_of_their_own(is_set: bool, provide: Provide) -> None:
    """A call sees what was set where the server started, and nothing that another call has set."""
    provide(ParentBased(TraceIdRatioBased(0.3)))
    variable: ContextVar[str] = ContextVar("variable", default="default")
    app = Server("traced", telemetry=True)

    @app.tool
    async def work() -> list[str | bool]:
        found = variable.get()
        variable.set("of a call")
        return [found, trace.get_current_span().get_span_context().is_valid]

    if is_set:
        variable.set("of the server")
    async with (
        app.serving("http", port=0) as url,
        Client(url, telemetry=False, protocol="2026-07-28") as client,
    ):
        results = [(await client.call_tool("work")).data for _ in range(EACH)]
    assert results == [["of the server" if is_set else "default", True]] * EACH
