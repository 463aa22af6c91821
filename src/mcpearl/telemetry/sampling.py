"""Calls that are not sampled, which are most of them where traces are sampled: they cost next to nothing.

The SDK decides for each span whether it is sampled, which takes longer than a short call. Where it
samples a share of the traces, the same decision is made here first, with the same trace id.
"""

import random
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

_SPAN = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))  # its key in a context


class Coin:
    """Decides whether a call that begins a trace gets a span.

    Args:
        tracer: Makes the spans.
    """

    __slots__ = ("_ids", "_looked", "_rate", "_tracer", "bound")

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._looked = False
        self._ids = _Drawn(None)
        self._rate = 1.0
        self.bound: int | None = None
        """Traces with a lower id are sampled; None as long as the SDK has to be asked."""

    def flip(self) -> bool:
        """Whether a span is to be made; the SDK may still decide that it is not recorded."""
        if self.bound is None:
            if not self._looked:
                self._look()
            if self.bound is None:
                return True
        if self._ids.low is not None:
            return True  # the span of the last draw is still to be made
        if random.random() >= self._rate:
            return False
        self._ids.low = random.randrange(self.bound)
        return True

    def _look(self) -> None:
        """Find out which share of the traces the SDK samples, once it is set up."""
        tracer: Any = getattr(self._tracer, "_tracer", self._tracer)  # behind the API's stand-in
        sampler = getattr(tracer, "sampler", None)
        if sampler is None:
            return
        self._looked = True
        root = getattr(sampler, "_root", sampler)
        bound, rate = getattr(root, "bound", None), getattr(root, "rate", 1)
        if isinstance(bound, int) and rate < 1 and hasattr(tracer, "id_generator"):
            self._ids = _Drawn(tracer.id_generator)
            tracer.id_generator = self._ids
            self.bound, self._rate = bound, rate


class _Drawn:
    """Trace ids whose lower half was drawn when the sampling was decided."""

    __slots__ = ("_ids", "low")

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self.low: int | None = None

    def generate_span_id(self) -> int:
        return int(self._ids.generate_span_id())

    def generate_trace_id(self) -> int:
        low, self.low = self.low, None
        if low is None:
            return int(self._ids.generate_trace_id())
        return (random.getrandbits(64) or 1) << 64 | low

    def is_trace_id_random(self) -> bool:
        return True


class Unsampled(Context):
    """The context of a call without a span. What is made in it is not sampled either.

    Args:
        began: When the call began, in monotonic time.
    """

    __slots__ = ("began",)

    def __init__(self, began: float) -> None:
        self.began = began

    @property
    def context(self) -> "Unsampled":
        """The context to run the call in: itself."""
        return self

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value; the span is made when it is asked for."""
        if key == _SPAN and _SPAN not in self:
            dict.__setitem__(self, _SPAN, _unsampled_span())
        return dict.get(self, key, default)

    def copy(self) -> dict[str, object]:
        """Return the values, with the span."""
        self.get(_SPAN)
        return dict(self)


class _PassedBy(Context):
    """The context of all calls that are not followed: each gets one of its own when it is looked at."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value of the call's own context."""
        return self._own().get(key, default)

    def copy(self) -> dict[str, object]:
        """Return the values of the call's own context."""
        return self._own().copy()

    def _own(self) -> "Unsampled":
        own = Unsampled(0.0)
        otel_context.attach(own)
        return own


_PASSED_BY = _PassedBy()


def pass_by() -> Callable[[], object]:
    """Return what makes the current task one whose call is not sampled, as fast as that can be."""
    runtime = getattr(otel_context, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)  # of the usual one
    if isinstance(variable, ContextVar):
        return partial(variable.set, _PASSED_BY)
    return partial(otel_context.attach, _PASSED_BY)


def _unsampled_span() -> NonRecordingSpan:
    ids = random.getrandbits(128) or 1, random.getrandbits(64) or 1
    return NonRecordingSpan(SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(0)))
