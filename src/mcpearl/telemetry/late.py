"""Calls with a span, and calls whose span is made only if something looks at it."""

import threading
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context

from mcpearl.telemetry.durations import Attributes
from mcpearl.telemetry.light_spans import LightSpans
from mcpearl.telemetry.sampling import SPAN, attaching

if TYPE_CHECKING:
    from mcpearl.telemetry.otel import OpenTelemetry

_attach, _ = attaching()
_making = threading.Lock()  # held while the span of a `LateCall` is made: calls may use threads


class Traced:
    """A call with a span."""

    __slots__ = ("attributes", "began", "context", "span")

    is_own = True
    """Whether the span is ended with the call."""

    def __init__(
        self, span: trace.Span, context: Context, attributes: Attributes, began: float
    ) -> None:
        self.span = span
        self.context = context
        self.attributes = attributes
        self.began = began


class LateCall(Context):
    """The context of a call whose span is made when something looks at it, or when the call ends.

    Args:
        observer: Makes the span.
        call: The call.
        began: When it began, in monotonic time.
        spans: Exports the span if nothing has looked at it.
    """

    __slots__ = ("_call", "_ids", "_observer", "_traced", "began", "spans")

    def __init__(
        self, observer: "OpenTelemetry", call: Any, began: float, spans: LightSpans
    ) -> None:
        self._observer = observer
        self.spans = spans
        self._call = call  # None once it has ended: the call refers to this object
        self._traced: Traced | None = None
        self._ids: trace.SpanContext | None = None  # of a span that ended before anything looked
        self.began = began

    def enter(self) -> Any:
        """Make this the current context; return what ends that."""
        return _attach(self)

    def end_unseen(self, ids: trace.SpanContext) -> bool:
        """End the call with these ids; return whether nothing has looked at the span, or ended it."""
        with _making:
            unseen = self._traced is None and self._call is not None
            if unseen:
                self._ids, self._call = ids, None
        return unseen

    def end(self) -> Traced | None:
        """End the call, and return it with its span; None if it had ended."""
        with _making:
            if self._call is None:
                return None
            traced, self._call = self._look(), None
        return traced

    def _look(self) -> Traced:
        if self._traced is None:
            self._traced = self._observer.begin_earlier(self._call, self.began)
        return self._traced

    @property
    def _span(self) -> trace.Span:
        with _making:
            return self._look().span if self._ids is None else trace.NonRecordingSpan(self._ids)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value; the span is made when it is asked for."""
        return self._span if key == SPAN else default

    def copy(self) -> dict[str, object]:
        """Return the values, with the span."""
        return {SPAN: self._span}
