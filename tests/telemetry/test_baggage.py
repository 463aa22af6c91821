"""The context of a trace reaches the handler: its baggage, its state, and the span that a task is in."""

import asyncio
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from mcpearl import Client, Server
from tests.server.wire import ERAS
from tests.telemetry.test_otel import spans

__all__ = ["spans"]

REMOTE = SpanContext(11 << 64, 7, True, TraceFlags(1), TraceState([("vendor", "of-the-caller")]))


def of_a_caller(has_span: bool) -> context.Context:
    """Return a context with baggage, with or without a span."""
    found = baggage.set_baggage("user", "ada", context.Context())
    return trace.set_span_in_context(NonRecordingSpan(REMOTE), found) if has_span else found


@pytest.mark.parametrize("has_span", [False, True])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("wire", ["memory", "http", "mounted"])
async def test_a_handler_has_the_baggage_and_the_state_of_its_caller(
    spans: Any, has_span: bool, wire: str, era: str
) -> None:
    app = Server("inner", telemetry=True)

    @app.tool
    async def seen() -> dict[str, Any]:
        span = trace.get_current_span().get_span_context()
        return {"baggage": dict(baggage.get_all()), "state": dict(span.trace_state)}

    state = {"vendor": "of-the-caller"} if has_span else {}
    expected = {"baggage": {"user": "ada"}, "state": state}
    async with app.serving("http", port=0) as url:
        outer = Server("outer", telemetry=True)
        outer.mount("far", url)
        targets = {"memory": (app, "seen"), "http": (url, "seen"), "mounted": (outer, "far__seen")}
        target, name = targets[wire]
        async with Client(target, protocol=era, telemetry=True) as client:
            token = context.attach(of_a_caller(has_span))
            answer = await client.call_tool(name)
            context.detach(token)
    assert answer.structured_content == expected


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_task_does_belongs_to_the_trace_of_its_call(spans: Any, era: str) -> None:
    app = Server("long", telemetry=True)

    created = asyncio.Event()

    @app.tool(task=True)
    async def work() -> str:
        await created.wait()
        with trace.get_tracer("inside").start_as_current_span("inside"):
            return "done"

    async with Client(app, protocol=era, telemetry=True) as client:
        token = context.attach(of_a_caller(True))
        task = await client.start_task("work")
        context.detach(token)
        created.set()
        assert (await task.result()).text == "done"
    found = {(each.name, each.kind.name): each for each in spans.get_finished_spans()}
    asked, served = found["tools/call work", "CLIENT"], found["tools/call work", "SERVER"]
    inside = found["inside", "INTERNAL"]
    assert asked.parent.span_id == REMOTE.span_id
    assert served.parent.span_id == asked.context.span_id
    assert inside.parent.span_id == served.context.span_id
    assert {each.context.trace_id for each in (asked, served, inside)} == {REMOTE.trace_id}
