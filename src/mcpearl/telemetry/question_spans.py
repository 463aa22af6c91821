"""Spans and durations of questions: requests of a server to its client, at both ends."""

from typing import Any, NamedTuple

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from mcpearl.protocol.errors import McpError
from mcpearl.runtime import clock
from mcpearl.runtime.observer import Outcome
from mcpearl.telemetry.describing import GETTER, LONGEST_ID, describe_wire, error_type, failure
from mcpearl.telemetry.durations import Attributes, Durations
from mcpearl.telemetry.options import Telemetry
from mcpearl.telemetry.sampling import has_trace


class QuestionSpan(NamedTuple):
    """A question with a span."""

    span: trace.Span
    context: Context
    began: float
    token: Any
    """What ends the span being the current one; None where it is not."""


class QuestionSpans:
    """Makes the spans of questions, and records their durations.

    Args:
        tracer: Makes the spans.
        is_server: Whether it watches the server that asks, or the client that is asked.
        telemetry: What is exported.
        server: Attributes of the server that a client is connected to.
        durations: Records the durations, if they are exported.
    """

    def __init__(
        self,
        tracer: trace.Tracer,
        is_server: bool,
        telemetry: Telemetry,
        server: Attributes,
        durations: Durations | None,
    ) -> None:
        self._tracer = tracer
        self._is_server = is_server
        self._telemetry = telemetry
        self._server = server
        self._durations = durations

    def began(self, question: Any) -> QuestionSpan:
        """Begin a span: a server sends a request, and its client serves it."""
        began = clock.monotonic()
        if not self._telemetry.traces:
            return QuestionSpan(trace.INVALID_SPAN, Context(), began, None)
        attributes: Attributes = {"mcp.method.name": question.method, **self._server}
        describe_wire(attributes, question.version, question.medium)
        kind, parent = SpanKind.CLIENT, otel_context.get_current()
        if not self._is_server:
            kind = SpanKind.SERVER
            meta: Any = getattr(question.params, "meta", None)
            if has_trace(meta):
                parent = propagate.extract(meta, parent, GETTER)
        span = self._tracer.start_span(question.method, parent, kind, attributes=attributes)
        context = trace.set_span_in_context(span, parent)
        token = None if self._is_server else otel_context.attach(context)
        return QuestionSpan(span, context, began, token)

    def meta(self, began: QuestionSpan | None) -> dict[str, str]:
        """Return the members of `_meta` that tell the client which span the question belongs to."""
        carrier: dict[str, str] = {}
        if began is not None:
            propagate.inject(carrier, began.context)
        return carrier

    def ended(self, began: QuestionSpan, question: Any, outcome: Outcome, answer: Any) -> None:
        """End the span, and record the time."""
        span, error = began.span, error_type(outcome, answer)
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(failure(answer, self._telemetry))
        if question.id is not None:
            span.set_attribute("jsonrpc.request.id", str(question.id)[:LONGEST_ID])
        if isinstance(answer, McpError):
            span.set_attribute("rpc.response.status_code", str(answer.code))
        span.end()
        if began.token is not None:
            otel_context.detach(began.token)
        if self._durations is not None and self._durations.are_recorded:
            took, travels = clock.monotonic() - began.began, (question.version, question.medium)
            self._durations.question(took, question.method, error, travels)
