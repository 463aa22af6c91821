"""Sampling of traces, decided before the SDK is asked, so that calls without a span cost next to nothing.

The SDK decides for each span whether it is sampled, which takes a third as long as a short call. Where it
samples a share of the traces by their id, the same decision is made here first, with the same id.
"""

import random
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from math import log
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from mcpearl.runtime.observer import Stretch
from mcpearl.telemetry.durations import Attributes
from mcpearl.telemetry.light_spans import DrawnIds, LightSpans, light_spans

_SPAN = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))  # key of the span


STRETCH = 256  # calls that are decided on at once


class Coin:
    """Decides whether a call that begins a trace gets a span, and begins it.

    Args:
        tracer: Makes the spans.
    """

    __slots__ = ("_ids", "_light", "_looked", "_rarity", "_rate", "_tracer", "bound")

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._looked = False
        self._ids = DrawnIds(None)
        self._light: LightSpans | None = None
        self._rate = 1.0
        self._rarity = 0.0  # the logarithm of the share that is not sampled
        self.bound: int | None = None
        """Traces with a lower id are sampled; None as long as the SDK has to be asked."""

    def flip(self) -> bool:
        """Whether a span is to be made; the SDK may still decide that it is not recorded."""
        if not self._knows_the_rate():
            return True
        if self._ids.trace_id is not None:
            return True  # the span of the last draw is still to be made
        if random.random() >= self._rate:
            return False
        self.win()
        return True

    def misses(self) -> int:
        """Return how many calls in a row get no span. If it is fewer than `STRETCH`, the next one does.

        This is one draw for all of them; each has the same chance as if it were drawn by itself.
        """
        if not self._knows_the_rate():
            return 0
        if not self._rate:
            return STRETCH
        return min(STRETCH, int(log(1.0 - random.random()) / self._rarity))

    def win(self) -> None:
        """Draw the id of a trace that is sampled."""
        if self.bound:
            low = random.getrandbits(64) % self.bound
            self._ids.trace_id = (random.getrandbits(64) or 1) << 64 | low

    def start_span(
        self, name: str, kind: SpanKind, attributes: Attributes, links: Sequence[Link]
    ) -> trace.Span:
        """Begin the span of a call that begins a trace."""
        if self._light is not None and not links:
            light = self._light.start(name, kind, attributes)
            if light is not None:
                return light
        return self._tracer.start_span(name, Context(), kind, attributes=attributes, links=links)

    def _knows_the_rate(self) -> bool:
        if self.bound is None and not self._looked:
            self._look()
        return self.bound is not None

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
            self._ids = DrawnIds(tracer.id_generator)
            tracer.id_generator = self._ids
            self.bound, self._rate = bound, rate
            self._rarity = log(1.0 - rate)
            if type(root).__name__ == "TraceIdRatioBased":  # others may add attributes
                self._light = light_spans(tracer, self._ids)


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
    """The context of all calls that are not followed. A call that reads it gets one of its own."""

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


def passing_by() -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """Return two functions: one marks the current context as not sampled, the other removes the mark."""
    runtime = getattr(otel_context, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)  # of the usual one, which is faster
    if isinstance(variable, ContextVar):
        return partial(variable.set, _PASSED_BY), variable.reset
    return partial(otel_context.attach, _PASSED_BY), otel_context.detach


class Draws(Stretch):
    """Says which calls of a connection get a span. It is decided for many of them at once.

    Args:
        coin: Says how many calls in a row get none.
        follows_all: Whether every call is followed for another reason.
    """

    __slots__ = ("_coin", "_follows_all", "_wins")

    def __init__(self, coin: Coin, follows_all: Callable[[], bool]) -> None:
        super().__init__()
        self._coin = coin
        self._follows_all = follows_all
        self._wins = False  # whether the call after the remaining ones gets a span

    def follows(self, call: Any) -> bool:
        """Whether a call gets a span, belongs to a trace, or is followed for another reason."""
        if has_trace(getattr(call.params, "meta", None)):
            return True
        if self.left:
            self.left -= 1
            return False
        if self._follows_all():
            return True
        if not self._wins:
            misses = self._coin.misses()
            self._wins = misses < STRETCH
            if misses:
                self.left = misses - 1
                return False
        self._wins = False
        self._coin.win()
        return True


class Untraced(Stretch):
    """Follows calls if their time is recorded, where traces are off."""

    __slots__ = ("_follows_all",)

    def __init__(self, follows_all: Callable[[], bool]) -> None:
        super().__init__()
        self._follows_all = follows_all

    def follows(self, call: Any) -> bool:
        """Whether the time of a call is recorded."""
        return self._follows_all()


def has_trace(meta: Any) -> bool:
    """Whether the `_meta` of a request says which trace it belongs to."""
    return bool(meta) and ("traceparent" in meta or "baggage" in meta)


def context_of(span: trace.Span) -> Context:
    """Return the context that holds a span and nothing else."""
    return Context({_SPAN: span})


def _unsampled_span() -> NonRecordingSpan:
    ids = random.getrandbits(128) or 1, random.getrandbits(64) or 1
    return NonRecordingSpan(SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(0)))
