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
from mcpearl.telemetry.light_spans import DrawnIds, LightSpans, context_in, light_spans

SPAN = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))
"""The key of the span in a context."""


STRETCH = 1024  # calls that are decided on at once
_UNTIL_LOOK = 16  # calls after which it is checked again whether the SDK is set up


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

    @property
    def is_set_up(self) -> bool:
        """Whether there is anything that makes spans."""
        self._knows_the_rate()
        return self._looked

    def flip(self) -> bool:
        """Whether a span is to be made; the SDK may still decide that it is not recorded."""
        if not self._knows_the_rate():
            return self._looked  # the SDK is asked, if it is set up
        if self._ids.trace_id is not None:
            return True  # the span of the last draw is still to be made
        if random.random() >= self._rate:
            return False
        self.win()
        return True

    def misses(self) -> tuple[int, bool]:
        """Return how many calls in a row get no span, and whether the next one does.

        This is one draw for all of them; each has the same chance as if it were drawn by itself.
        """
        if self.bound is None and not self._knows_the_rate():
            return (0, True) if self._looked else (_UNTIL_LOOK, False)
        if not self._rate:
            return STRETCH, False
        missed = int(log(1.0 - random.random()) / self._rarity)
        return (missed, True) if missed < STRETCH else (STRETCH, False)

    def unsampled(self, began: float) -> "Unsampled":
        """Return the context of a call without a span. It is empty while the SDK is not set up.

        Args:
            began: When the call began, in monotonic time.
        """
        return Unsampled(began) if self._looked else Untraceable(began)

    def win(self) -> None:
        """Draw the id of a trace that is sampled."""
        if self.bound:
            self._ids.trace_id = _trace_below(self.bound)

    def light_spans(self) -> LightSpans | None:
        """Return what exports the spans that begin a trace and have no links, if those are light."""
        return self._light if self._light is not None and self._light.suit() else None

    def draw_ids(self) -> SpanContext:
        """Draw the ids of a span that begins a trace which is sampled."""
        return context_in(_trace_below(self.bound or 1))

    def start_span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        links: Sequence[Link],
        began: int | None = None,
    ) -> trace.Span:
        """Begin the span of a call that begins a trace, now or at an earlier time."""
        if self._light is not None and not links:
            light = self._light.start(name, kind, attributes, began)
            if light is not None:
                return light
        return self._tracer.start_span(
            name, Context(), kind, attributes=attributes, links=links, start_time=began
        )

    def _knows_the_rate(self) -> bool:
        if self.bound is None and not self._looked:
            self._look()
        return self.bound is not None

    def _look(self) -> None:
        """Find out which share of the traces the SDK samples, once it is set up."""
        tracer: Any = getattr(self._tracer, "_tracer", self._tracer)  # behind the API's stand-in
        if isinstance(tracer, trace.NoOpTracer):
            return  # it is not set up
        self._looked = True
        sampler = getattr(tracer, "sampler", None)
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
        if key == SPAN and SPAN not in self:
            dict.__setitem__(self, SPAN, _unsampled_span())
        return dict.get(self, key, default)

    def copy(self) -> dict[str, object]:
        """Return the values, with the span."""
        self.get(SPAN)
        return dict(self)


class Untraceable(Unsampled):
    """The context of a call while the SDK is not set up. Nothing can be known of its trace."""

    __slots__ = ()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        return dict.get(self, key, default)

    def copy(self) -> dict[str, object]:
        """Return the values."""
        return dict(self)


class PassedBy(Context):
    """The context of all calls that are not followed. A call that reads it gets one of its own.

    Args:
        coin: Makes that context.
    """

    __slots__ = ("_coin",)

    def __init__(self, coin: Coin) -> None:
        self._coin = coin

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value of the call's own context."""
        return self.own().get(key, default)

    def copy(self) -> dict[str, object]:
        """Return the values of the call's own context."""
        return self.own().copy()

    def own(self) -> Context:
        """Return the call's own context, which is the current one from then on."""
        current = otel_context.get_current()
        if current is self:
            current = self._coin.unsampled(0.0)
            otel_context.attach(current)
        elif not (isinstance(current, Unsampled) or SPAN in current):
            return self._coin.unsampled(0.0)  # it is read outside of the call
        return current


def passing_by(coin: Coin) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """Return two functions: one marks the current context as not sampled, the other removes the mark.

    Args:
        coin: Makes the contexts of calls in which the mark is read.
    """
    attach, detach = attaching()
    return partial(attach, PassedBy(coin)), detach


def attaching() -> tuple[Callable[[Context], Any], Callable[[Any], object]]:
    """Return two functions: one makes a context the current one, the other ends that."""
    runtime = getattr(otel_context, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)  # of the usual one, which is faster
    if isinstance(variable, ContextVar):
        return variable.set, variable.reset
    return otel_context.attach, otel_context.detach


class Draws(Stretch):
    """Says which calls of a connection get a span. It is decided for many of them at once.

    Args:
        coin: Says how many calls in a row get none.
        follows_all: Whether every call is followed for another reason.
    """

    __slots__ = ("_coin", "_follows_all")

    def __init__(self, coin: Coin, follows_all: Callable[[], bool]) -> None:
        super().__init__()
        self._coin = coin
        self._follows_all = follows_all

    def follows(self, call: Any) -> bool:
        """Whether a call gets a span, belongs to a trace, or is followed for another reason."""
        if has_trace(getattr(call.params, "meta", None)):
            return True
        if self.left:
            self.left -= 1
            return False
        if self._follows_all():
            return True
        if not self.wins:
            misses, self.wins = self._coin.misses()
            if misses:
                self.left = misses - 1
                return False
        self._coin.win()
        self.draw()
        return True

    def draw(self) -> None:
        """Draw how many of the next calls get no span."""
        self.left, self.wins = self._coin.misses()


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
    return Context({SPAN: span})


def _trace_below(bound: int) -> int:
    """Draw the id of a trace that is sampled."""
    return (random.getrandbits(64) or 1) << 64 | random.getrandbits(64) % bound


def _unsampled_span() -> NonRecordingSpan:
    ids = random.getrandbits(128) or 1, random.getrandbits(64) or 1
    return NonRecordingSpan(SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(0)))
