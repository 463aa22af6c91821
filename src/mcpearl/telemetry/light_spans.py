"""Spans of sampled calls that are exported without the SDK's own span object.

The SDK needs as long for one span as a server for several short calls: it copies and checks attributes,
makes locks and lists, and asks the sampler. The span of a call that begins a trace is known to be
sampled, its attributes are known to be valid, and in most calls nothing touches it. Such a span is handed
to the span processors when it ends. As soon as something does touch it, it becomes a span of the SDK.
"""

import random
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from mcpearl.telemetry.durations import Attributes

_FEW = 32  # attributes, more than a call has
_FLAGS = TraceFlags(TraceFlags.SAMPLED | getattr(TraceFlags, "RANDOM_TRACE_ID", 0))


class DrawnIds(threading.local):
    """The ids of the SDK's next span in this thread, where they were drawn before it is made.

    Args:
        ids: Draws all other ids.
    """

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self.trace_id: int | None = None
        self.span_id: int | None = None

    def generate_span_id(self) -> int:
        """Return the id of the next span."""
        drawn, self.span_id = self.span_id, None
        return int(self._ids.generate_span_id()) if drawn is None else drawn

    def generate_trace_id(self) -> int:
        """Return the id of the next trace."""
        drawn, self.trace_id = self.trace_id, None
        return int(self._ids.generate_trace_id()) if drawn is None else drawn

    def is_trace_id_random(self) -> bool:
        """Whether trace ids are random, as the flag in `traceparent` says."""
        return True


class LightSpan(trace.Span):
    """The span of a call that begins a trace. It becomes one of the SDK when something touches it."""

    __slots__ = ("_attributes", "_began", "_context", "_ended", "_kind", "_name", "_real", "_spans")

    def __init__(
        self,
        spans: "LightSpans",
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        context: SpanContext,
        began: int | None = None,
    ) -> None:
        self._spans = spans
        self._name = name
        self._kind = kind
        self._attributes = attributes
        self._context = context
        self._began = began or time.time_ns()
        self._ended = False
        self._real: trace.Span | None = None

    def get_span_context(self) -> SpanContext:
        """Return the ids of the span."""
        return self._context

    def is_recording(self) -> bool:
        """Whether the span has not ended."""
        return not self._ended

    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it to the span processors."""
        if self._ended:
            return
        self._ended = True
        if self._real is not None:
            self._real.end(end_time)
        else:
            self._spans.export(
                self._name,
                self._context,
                self._kind,
                self._attributes,
                (self._began, end_time or time.time_ns()),
            )

    @property
    def real(self) -> trace.Span:
        """The same span as one of the SDK."""
        if self._real is None:
            self._real = self._spans.materialize(
                self._name, self._context, self._kind, self._attributes, self._began
            )
        return self._real

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes."""
        self.real.set_attributes(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set an attribute."""
        self.real.set_attribute(key, value)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Add an event."""
        self.real.add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Add a link to another span."""
        self.real.add_link(context, attributes)

    def update_name(self, name: str) -> None:
        """Change the name."""
        self.real.update_name(name)

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Set the status."""
        self.real.set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Any = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Record an exception as an event."""
        self.real.record_exception(exception, attributes, timestamp, escaped)

    def __getattr__(self, name: str) -> Any:
        """Return what only spans of the SDK have, such as `attributes` and `name`."""
        return getattr(self.real, name)


class LightSpans:
    """Makes light spans with a tracer of the SDK, as long as they are what the SDK would have exported.

    Args:
        tracer: The tracer of the SDK, whose ids are `ids`.
        ids: Hands drawn ids to the SDK.
    """

    def __init__(self, tracer: Any, ids: DrawnIds) -> None:
        self._tracer = tracer
        self._ids = ids
        self._make = import_module("opentelemetry.sdk.trace").ReadableSpan
        self._processors: Any = None  # those that were looked at
        self._suit = False

    def start(
        self, name: str, kind: SpanKind, attributes: Attributes, began: int | None = None
    ) -> LightSpan | None:
        """Begin the span of a trace that is sampled; None if the SDK has to make it.

        Args:
            name: The name of the span.
            kind: Its kind.
            attributes: Texts and numbers. The span keeps the dictionary.
            began: When it began, in nanoseconds since 1970; by default, now.
        """
        trace_id = self._ids.trace_id
        if not self.suit() or trace_id is None:
            return None
        self._ids.trace_id = None
        return LightSpan(self, name, kind, attributes, context_in(trace_id), began)

    def suit(self) -> bool:
        """Whether light spans are what the SDK would have exported."""
        processors = self._tracer.span_processor._span_processors
        if processors is not self._processors:
            self._processors, self._suit = processors, self._are_suitable(processors)
        return self._suit

    def _are_suitable(self, processors: Any) -> bool:
        """Whether no processor looks at a span before it ends, and no limit changes its attributes."""
        export = import_module("opentelemetry.sdk.trace.export")
        exporting = (export.BatchSpanProcessor, export.SimpleSpanProcessor)
        limits = self._tracer._span_limits
        fewest, longest = limits.max_span_attributes, limits.max_span_attribute_length
        counted = type(self._tracer._tracer_metrics).__name__ != "NoOpTracerMetrics"
        return (
            all(type(each) in exporting for each in processors)
            and (fewest is None or fewest >= _FEW)
            and longest is None
            and not counted
            and self._tracer._is_enabled()
        )

    def export(
        self,
        name: str,
        context: SpanContext,
        kind: SpanKind,
        attributes: Attributes,
        times: tuple[int, int],
    ) -> None:
        """Hand a span that has ended to the processors."""
        tracer = self._tracer
        ended = self._make(
            name,
            context,
            None,
            tracer.resource,
            attributes,
            kind=kind,
            start_time=times[0],
            end_time=times[1],
            instrumentation_scope=tracer._instrumentation_scope,
        )
        for processor in tracer.span_processor._span_processors:
            processor.on_end(ended)

    def materialize(
        self,
        name: str,
        context: SpanContext,
        kind: SpanKind,
        attributes: Attributes,
        began: int,
    ) -> trace.Span:
        """Have the SDK make the same span."""
        ids = self._ids
        ids.trace_id, ids.span_id = context.trace_id, context.span_id
        span: trace.Span = self._tracer.start_span(
            name, Context(), kind, attributes=attributes, start_time=began
        )
        return span


def context_in(trace_id: int) -> SpanContext:
    """Return the ids of a new span that begins a trace which is sampled."""
    return SpanContext(trace_id, random.getrandbits(64) or 1, False, _FLAGS)


def light_spans(tracer: Any, ids: DrawnIds) -> LightSpans | None:
    """Return what makes light spans; None if the SDK is not the one that this was written for.

    Args:
        tracer: The tracer of the SDK, whose ids are `ids`.
        ids: Hands drawn ids to the SDK.
    """
    names = ("resource", "_instrumentation_scope", "_span_limits", "_tracer_metrics", "_is_enabled")
    if not all(hasattr(tracer, name) for name in names):
        return None
    return LightSpans(tracer, ids) if hasattr(tracer.span_processor, "_span_processors") else None
