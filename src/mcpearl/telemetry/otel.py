"""Spans and durations for OpenTelemetry, by the MCP semantic conventions, for servers and clients.

Only the API of OpenTelemetry is used; the application, or the environment, sets up the SDK. This module
is loaded when something is exported, and not otherwise.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from mcpearl._version import __version__
from mcpearl.protocol.errors import McpError
from mcpearl.runtime import clock, tracing
from mcpearl.runtime.observer import AnsweredMessage, Outcome, SamplingObserver, Stretch
from mcpearl.telemetry.describing import GETTER, LONGEST_ID, describe_wire, error_type, failure
from mcpearl.telemetry.durations import NAMES, Attributes, Durations, Side
from mcpearl.telemetry.late import LateCall, Traced
from mcpearl.telemetry.metrics import MAX_SERIES, OTHER, known_method
from mcpearl.telemetry.options import Telemetry
from mcpearl.telemetry.outer_span import Adopted, outer_span
from mcpearl.telemetry.question_spans import QuestionSpan, QuestionSpans
from mcpearl.telemetry.sampling import (
    Coin,
    Draws,
    PassedBy,
    Unsampled,
    Untraceable,
    Untraced,
    context_of,
    has_trace,
    passing_by,
)
from mcpearl.telemetry.sdk import set_up

logger = logging.getLogger("mcpearl.telemetry")

Knows = Callable[[str, str], bool]


class OpenTelemetry(SamplingObserver):
    """Makes spans and durations of calls, questions and sessions.

    Args:
        side: Whether it watches a server or a client.
        telemetry: What is exported.
        knows: Whether there is a tool (`tools/call`) or prompt (`prompts/get`) of a name, where that is
            known; names that clients make up are not exported.
        server: Attributes of the server that a client is connected to.
        service: The name under which isolated processes of a server export, unless the environment
            has one.
    """

    def __init__(
        self,
        side: Side,
        telemetry: Telemetry,
        knows: Knows | None = None,
        server: Attributes | None = None,
        service: str = "mcpearl",
    ) -> None:
        self._is_server = side == "server"
        self._telemetry = telemetry
        self.looks = telemetry.contents
        self._knows = knows
        self._server = server or {}
        self._kind = SpanKind.SERVER if self._is_server else SpanKind.CLIENT
        self._tracer = trace.get_tracer("mcpearl", __version__)
        self._coin = Coin(self._tracer)
        self._durations = Durations(side, self._server) if telemetry.metrics else None
        self._questions = QuestionSpans(
            self._tracer, self._is_server, telemetry, self._server, self._durations
        )
        if telemetry.traces and self._is_server:
            tracing.use(_current_meta, partial(_enter, service))
        self._described: dict[tuple[str, str, str, str], Attributes] = {}
        self._open: dict[object, float] = {}  # when each connection began
        self._travels = "", ""  # of a client: the version and the wire of its last connection
        self._connection: Any = None  # of a client: the latest one

    # Calls

    def stretch(self) -> Stretch:
        """Return the object that says which calls of a new connection are followed."""
        if self._telemetry.traces:
            return Draws(self._coin, self._records)
        return Untraced(self._records)

    def _records(self) -> bool:
        """Whether the time of every call is recorded."""
        return self._durations is not None and self._durations.are_recorded

    def passing_by(self) -> tuple[Callable[[], Any], Callable[[Any], object]]:
        """Return two functions, which mark the context of calls without a span and remove the mark."""
        return passing_by(self._coin) if self._telemetry.traces else (_nothing, _nothing)

    def call_began(self, call: Any) -> "Traced | Unsampled":
        """Begin a span, in the trace that the request names, or the one that is active at a client."""
        began = clock.monotonic()
        if not self._telemetry.traces:
            return Untraceable(began)  # nothing is said of a trace that it may belong to
        parent = self._parent_of(call)
        if parent is None and not self._coin.flip():
            return self._coin.unsampled(began)
        if parent is not None and (isinstance(parent, Unsampled) or not self._coin.is_set_up):
            return Traced(trace.INVALID_SPAN, parent, {}, began)  # the trace is passed on as it is
        return self._begin(call, parent, self._ambient(), began)

    def begin_late(self, call: Any, began: float, passed: Any) -> LateCall | None:
        """Begin a trace whose span nothing may look at; None if it is more than a light span."""
        around = getattr(passed, "old_value", passed)  # the context without the mark
        if (
            call.method == "tools/call"
            and (around is Token.MISSING or (around.__class__ is Context and not around))
            and not self._telemetry.contents
            and not self._records()
        ):
            spans = self._coin.light_spans()
            return None if spans is None else LateCall(self, call, began, spans)
        return None

    def begin_earlier(self, call: Any, began: float) -> Traced:
        """Begin a span that begins a trace, at a time before now."""
        self._coin.win()
        earlier = time.time_ns() - int((clock.monotonic() - began) * 1e9)
        return self._begin(call, None, (), began, earlier)

    def end_late(self, late: LateCall, call: Any, ended: float) -> None:
        """End the span of a call of a tool that succeeded."""
        ids = self._coin.draw_ids()
        if not late.end_unseen(ids):
            traced = late.end()
            if traced is not None:
                self._end(traced, call, None, "result", None)
            return
        name = call.params.name
        what = call.method, name, *self._travels_of(call)
        attributes = (self._described.get(what) or self._describe(*what)).copy()
        self._describe_caller(attributes, call)
        end = time.time_ns() - int((clock.monotonic() - ended) * 1e9)
        times = end - int((ended - late.began) * 1e9), end
        late.spans.export(f"{call.method} {name}", ids, self._kind, attributes, times)

    def _parent_of(self, call: Any) -> Context | None:
        """Return the context that a call belongs to; None for one that begins a trace by itself.

        A context without a span may have baggage, which the call passes on.
        """
        if not self._is_server:
            current = otel_context.get_current()
            if isinstance(current, PassedBy):
                current = current.own()
            if current.__class__ is Context and not current:
                return None
            has_span = trace.get_current_span(current).get_span_context().is_valid
            return current if has_span or current else None
        meta: Any = getattr(call.params, "meta", None)
        return propagate.extract(meta, Context(), GETTER) if has_trace(meta) else None

    def _begin(
        self,
        call: Any,
        parent: Context | None,
        links: Sequence[Link],
        began: float,
        earlier: int | None = None,
    ) -> Traced:
        method, attributes = call.method, self._attributes_of(call)
        name = attributes.get(NAMES.get(method, ""))
        title = method if name is None else f"{method} {name}"
        if parent is None:
            span = self._coin.start_span(title, self._kind, attributes, links, earlier)
            return Traced(span, context_of(span), attributes, began)
        outer = None if self._is_server else outer_span(parent, call)
        if outer is not None:
            outer.set_attributes(attributes)
            return Adopted(outer, parent, attributes, began)
        span = self._tracer.start_span(
            title, parent, self._kind, attributes=attributes, links=links
        )
        return Traced(span, trace.set_span_in_context(span, parent), attributes, began)

    def _attributes_of(self, call: Any) -> Attributes:
        method, name = call.method, ""
        if method in NAMES:
            named: str = call.params.name
            if self._knows is None or self._knows(method, named):
                name = named
        what = method, name, *self._travels_of(call)
        found = self._described.get(what)
        if found is None:
            found = self._describe(*what)
        found = found.copy()
        if self._is_server:
            self._describe_caller(found, call)
        if self._telemetry.contents:
            self._add_contents(found, call)
        return found

    def _describe(self, method: str, name: str, version: str, medium: str) -> Attributes:
        """Return the attributes that all calls of a tool have, and remember those of a few tools."""
        found: Attributes = {"mcp.method.name": method, **self._server}
        if name:
            found[NAMES[method]] = name
        if method == "tools/call":
            found["gen_ai.operation.name"] = "execute_tool"
        describe_wire(found, version, medium)
        if len(self._described) < MAX_SERIES:
            self._described[method, name, version, medium] = found
        return found

    def _describe_caller(self, found: Attributes, call: Any) -> None:
        found["jsonrpc.request.id"] = str(call.id)[:LONGEST_ID]
        address = call.outlet.address
        if address is not None:
            found["client.address"] = address
        if self._telemetry.contents and call.outlet.session_id is not None:
            found["mcp.session.id"] = call.outlet.session_id

    def _travels_of(self, call: Any) -> tuple[str, str]:
        """Return the version of the protocol that a call is in, and the wire it travels on."""
        if self._is_server:
            return call.caller.version.name, call.outlet.medium
        connection = self._connection
        if connection is not None and connection.end.agreed is not None:
            self._travels = connection.end.agreed, connection.transport.medium
        return self._travels

    def _add_contents(self, found: Attributes, call: Any) -> None:
        uri = getattr(call.params, "uri", None)
        if isinstance(uri, str):
            found["mcp.resource.uri"] = uri
        if call.method == "tools/call":
            found["gen_ai.tool.call.arguments"] = _json(call.params.arguments)

    def call_entered(self, began: "Traced | Unsampled") -> None:
        """Make the span the current one in the handler's task."""
        if self._telemetry.traces:
            otel_context.attach(began.context)

    def call_meta(self, began: "Traced | Unsampled") -> dict[str, str]:
        """Return the members of `_meta` that tell the server which span the request belongs to."""
        carrier: dict[str, str] = {}
        if began.__class__ is not Untraceable:
            propagate.inject(carrier, began.context)
        return carrier

    def call_ended(
        self,
        began: "Traced | LateCall | Unsampled",
        call: Any,
        outcome: Outcome,
        size: int,
        answer: Any,
    ) -> None:
        """End the span, and record the time."""
        if isinstance(began, LateCall):
            if outcome == "result":
                self.end_late(began, call, clock.monotonic())
                return
            traced = began.end()
            if traced is None:
                return
            began = traced
        durations = self._durations
        if durations is not None and not durations.are_recorded:
            durations = None
        if durations is None and isinstance(began, Unsampled):
            return
        error = error_type(outcome, answer)
        if isinstance(began, Traced):
            self._end(began, call, error, outcome, answer)
        if durations is not None:
            what = call.method, self._counted_name(call, outcome)
            took, travels = clock.monotonic() - began.began, self._travels_of(call)
            durations.call(took, what, error, travels, began.context)

    def _end(
        self, traced: Traced, call: Any, error: str | None, outcome: Outcome, answer: Any
    ) -> None:
        span = traced.span
        if span.is_recording():
            if error is not None and traced.is_own:
                span.set_attribute("error.type", error)
                span.set_status(failure(answer, self._telemetry))
            if outcome in ("result", "tool_error") and self._is_unnamed(traced, call):
                self._name(span, call)
            if isinstance(answer, McpError):
                span.set_attribute("rpc.response.status_code", str(answer.code))
            if not self._is_server and call.sent:
                span.set_attribute("jsonrpc.request.id", str(call.sent[-1].id))
            if self._telemetry.contents and outcome == "result" and call.method == "tools/call":
                span.set_attribute("gen_ai.tool.call.result", _json(answer))
        if traced.is_own:
            span.end()

    @staticmethod
    def _is_unnamed(traced: Traced, call: Any) -> bool:
        """Whether a call names a tool or prompt that was not known to be there when it began."""
        key = NAMES.get(call.method)
        return key is not None and key not in traced.attributes and traced.is_own

    def _name(self, span: trace.Span, call: Any) -> None:
        """Name what was called, now that it is known to exist."""
        span.set_attribute(NAMES[call.method], call.params.name)
        span.update_name(f"{call.method} {call.params.name}")

    def _counted_name(self, call: Any, outcome: Outcome) -> str:
        """Return what a call names, if it is there; names that clients make up are counted together."""
        if call.method not in NAMES:
            return ""
        name: str = call.params.name
        if outcome in ("result", "tool_error"):
            return name
        return name if self._knows is not None and self._knows(call.method, name) else OTHER

    def message_answered(self, message: AnsweredMessage) -> None:
        """Make a span of a request that was answered without a call, and record its time."""
        method = known_method(message.method)
        error = None if message.code is None else str(message.code)
        context = Context()
        if self._telemetry.traces:
            meta = message.meta
            parent = propagate.extract(meta, Context(), GETTER) if has_trace(meta) else None
            if parent is not None or self._coin.flip():
                context = self._span_of_message(message, method, error, parent or context)
        if self._durations is not None and self._durations.are_recorded:
            travels = "", message.wire
            self._durations.call(message.seconds, (method, ""), error, travels, context)

    def _span_of_message(
        self, message: AnsweredMessage, method: str, error: str | None, parent: Context
    ) -> Context:
        """Export the span of a request that was answered, and return its context."""
        attributes: Attributes = {"mcp.method.name": method}
        describe_wire(attributes, "", message.wire)
        if message.id is not None:
            attributes["jsonrpc.request.id"] = str(message.id)[:LONGEST_ID]
        if error is not None:
            attributes |= {"error.type": error, "rpc.response.status_code": error}
        ended = time.time_ns()
        span = self._tracer.start_span(
            method,
            parent,
            self._kind,
            attributes=attributes,
            links=self._ambient(),
            start_time=ended - int(message.seconds * 1e9),
        )
        if error is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended)
        return trace.set_span_in_context(span, parent)

    def _ambient(self) -> tuple[Link, ...]:
        """Return a link from a server's span to the span around it, such as the HTTP request's."""
        ambient = trace.get_current_span().get_span_context()
        return (Link(ambient),) if self._is_server and ambient.is_valid else ()

    # Questions of servers

    def question_began(self, question: Any) -> QuestionSpan:
        """Begin a span: a server sends a request, and its client serves it."""
        return self._questions.began(question)

    def question_meta(self, began: QuestionSpan | None) -> dict[str, str]:
        """Return the members of `_meta` that tell the client which span the question belongs to."""
        return self._questions.meta(began)

    def question_ended(
        self, began: QuestionSpan | None, question: Any, outcome: Outcome, answer: Any
    ) -> None:
        """End the span, and record the time."""
        if began is not None:
            self._questions.ended(began, question, outcome, answer)

    # Sessions

    def connection_began(self, connection: Any) -> None:
        """Note when a session began."""
        if not self._is_server:
            self._connection = connection
        if connection.transport is not None:
            self._open[connection] = clock.monotonic()

    def connection_ended(self, connection: Any, reason: Exception | None) -> None:
        """Record how long it took."""
        if connection is self._connection:
            self._connection = None
        began = self._open.pop(connection, None)
        if began is None or self._durations is None:
            return
        travels = _version_of(connection), connection.transport.medium
        self._durations.session(clock.monotonic() - began, reason, travels)


def _current_meta() -> dict[str, str]:
    """Return the members of `_meta` that tell another process which span is the current one."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


def _enter(service: str, meta: Mapping[str, Any]) -> None:
    """Make the span that another process named the current one here."""
    set_up(service)  # this process may have been forked before the server had set it up
    otel_context.attach(propagate.extract(meta, Context(), GETTER))


def _nothing(*_: Any) -> None:
    pass


def _version_of(connection: Any) -> str:
    """Return the version of the protocol that a session was in; empty if it was not agreed on."""
    end = getattr(connection, "end", None)
    caller = getattr(end, "caller", None)
    return getattr(end, "agreed", None) or ("" if caller is None else caller.version.name)


def server_attributes(url: object) -> Attributes:
    """Return where a client finds its server, if that is an address."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        address, port = parts.hostname, parts.port
    except ValueError:
        return {}
    found: Attributes = {} if address is None else {"server.address": address}
    return found if port is None or not found else {**found, "server.port": port}


def _json(contents: Any) -> str:
    return msgspec.json.encode(contents).decode()
