"""Spans and durations for OpenTelemetry, by the MCP semantic conventions, for servers and clients.

Only the API of OpenTelemetry is used; the application, or the environment, sets up the SDK. This module
is loaded when something is exported, and not otherwise.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from mcpearl._version import __version__
from mcpearl.protocol.errors import McpError
from mcpearl.runtime import clock, tracing
from mcpearl.runtime.observer import Outcome, SamplingObserver
from mcpearl.telemetry.metrics import BOUNDS, OTHER
from mcpearl.telemetry.options import Telemetry
from mcpearl.telemetry.sampling import Coin, Unsampled, pass_by
from mcpearl.telemetry.sdk import set_up
from mcpearl.types.jsonrpc import ERROR_CODES

logger = logging.getLogger("mcpearl.telemetry")

Attributes = dict[str, str | int]
Knows = Callable[[str, str], bool]
_LONGEST = 8192  # characters of a member of `_meta` that is read
_NAMES = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
# What messages travel on: `network.transport` and `network.protocol.name`.
_MEDIA: dict[str, Attributes] = {
    "stdio": {"network.transport": "pipe"},
    "tcp": {"network.transport": "tcp"},
    "unix": {"network.transport": "unix"},
    "websocket": {"network.transport": "tcp", "network.protocol.name": "websocket"},
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
}


class MetaGetter(Getter[Mapping[str, Any]]):
    """Reads the context of a trace from the `_meta` of a request, whatever a client puts there."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        """Return the value of a key, if it is a text of a bearable length."""
        found = carrier.get(key)
        return [found] if isinstance(found, str) and len(found) <= _LONGEST else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        """Return the keys."""
        return list(carrier)


_GETTER = MetaGetter()


class Traced:
    """A call with a span."""

    __slots__ = ("attributes", "began", "context", "span")

    def __init__(
        self, span: trace.Span, context: Context, attributes: Attributes, began: float
    ) -> None:
        self.span = span
        self.context = context
        self.attributes = attributes
        self.began = began


class Asked(NamedTuple):
    """A question with a span."""

    span: trace.Span
    context: Context
    token: Any
    """What ends the span being the current one; None where it is not."""


@lru_cache(maxsize=16)
def _histograms(side: str, provider: metrics.MeterProvider) -> tuple[Any, Any]:
    """Return the instruments of all servers or clients: OpenTelemetry forgets none that it made."""
    meter = provider.get_meter("mcpearl", __version__)

    def make(what: str, description: str) -> Any:
        name = f"mcp.{side}.{what}.duration"
        return meter.create_histogram(
            name, "s", description, explicit_bucket_boundaries_advisory=BOUNDS
        )

    return (
        make("operation", "The time from a request to its answer."),
        make("session", "How long a session took."),
    )


class OpenTelemetry(SamplingObserver):
    """Makes spans and durations of what it is told.

    Args:
        side: Whose: a server's or a client's.
        telemetry: What is exported.
        knows: Whether there is a tool (`tools/call`) or prompt (`prompts/get`) of a name, where that is
            known; names that clients make up are not exported.
        server: Attributes of the server that a client is connected to.
        service: The name under which isolated processes export, unless the environment has one.
    """

    def __init__(
        self,
        side: Literal["server", "client"],
        telemetry: Telemetry,
        knows: Knows | None = None,
        server: Attributes | None = None,
        service: str = "mcpearl",
    ) -> None:
        self._is_server = side == "server"
        self._telemetry = telemetry
        self._knows = knows
        self._server = server or {}
        self._kind = SpanKind.SERVER if self._is_server else SpanKind.CLIENT
        self._tracer = trace.get_tracer("mcpearl", __version__)
        self._coin = Coin(self._tracer)
        self._flip = self._coin.flip
        self._operations: Any = None
        self._sessions: Any = None
        if telemetry.metrics:
            self._operations, self._sessions = _histograms(side, metrics.get_meter_provider())
        if telemetry.traces:
            tracing.use(_current_meta, partial(_enter, service))
        self._open: dict[object, float] = {}  # when each connection began
        self._connection: Any = None  # of a client: the latest one

    # Calls

    def picks(self, call: Any) -> bool:
        """Whether a call gets a span, or its time is recorded; it may belong to a trace already."""
        operations = self._operations
        if operations is not None and _is_real(operations):
            return True
        if not self._telemetry.traces:
            return False
        try:
            meta = call.params.meta
        except AttributeError:
            meta = None
        if meta and ("traceparent" in meta or "tracestate" in meta or "baggage" in meta):
            return True
        return self._flip()

    @property
    def pass_by(self) -> Callable[[], object]:
        """What prepares the task of a handler whose call has no span."""
        return pass_by() if self._telemetry.traces else _nothing

    def call_began(self, call: Any) -> "Traced | Unsampled":
        """Begin a span, in the trace that the request names, or the one that is active at a client."""
        began = clock.monotonic()
        if not self._telemetry.traces:
            return Unsampled(began)
        parent = self._parent_of(call)
        if parent is None and not self._coin.flip():
            return Unsampled(began)
        links: tuple[Link, ...] = ()
        ambient = trace.get_current_span().get_span_context()
        if self._is_server and ambient.is_valid:
            links = (Link(ambient),)  # such as the HTTP request's
        return self._begin(call, parent, links, began)

    def _parent_of(self, call: Any) -> Context | None:
        """Return the context that a call belongs to; None for one that begins a trace."""
        if not self._is_server:
            current = otel_context.get_current()
            return current if trace.get_current_span(current).get_span_context().is_valid else None
        meta: Any = getattr(call.params, "meta", None)
        return propagate.extract(meta, Context(), _GETTER) if _has_trace(meta) else None

    def _begin(
        self, call: Any, parent: Context | None, links: Sequence[Link], began: float
    ) -> Traced:
        method, attributes = call.method, self._attributes_of(call)
        name = attributes.get(_NAMES.get(method, ""))
        span = self._tracer.start_span(
            method if name is None else f"{method} {name}",
            Context() if parent is None else parent,
            self._kind,
            attributes=attributes,
            links=links,
        )
        return Traced(span, trace.set_span_in_context(span, parent or Context()), attributes, began)

    def _attributes_of(self, call: Any) -> Attributes:
        method, params = call.method, call.params
        found: Attributes = {"mcp.method.name": method, **self._server}
        key = _NAMES.get(method)
        if key is not None and (self._knows is None or self._knows(method, params.name)):
            found[key] = params.name
        if method == "tools/call":
            found["gen_ai.operation.name"] = "execute_tool"
        if self._is_server:
            self._describe_caller(found, call)
        elif self._connection is not None:
            found |= _MEDIA.get(self._connection.transport.medium, {})
            if self._connection.end.agreed is not None:
                found["mcp.protocol.version"] = self._connection.end.agreed
        if self._telemetry.contents:
            self._add_contents(found, call)
        return found

    def _describe_caller(self, found: Attributes, call: Any) -> None:
        found["jsonrpc.request.id"] = str(call.id)
        found["mcp.protocol.version"] = call.caller.version.name
        found |= _MEDIA.get(call.outlet.medium, {})
        address = call.outlet.address
        if address is not None:
            found["client.address"] = address
        if self._telemetry.contents and call.outlet.session_id is not None:
            found["mcp.session.id"] = call.outlet.session_id

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
        """Return what tells the server which span the request belongs to."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier, began.context)
        return carrier

    def call_ended(
        self, began: "Traced | Unsampled", call: Any, outcome: Outcome, size: int, answer: Any
    ) -> None:
        """End the span, and record the time."""
        records = self._operations is not None and _is_real(self._operations)
        if not records and began.__class__ is Unsampled:
            return
        error = _error_type(outcome, answer)
        if isinstance(began, Traced):
            self._end(began, call, error, outcome, answer)
        if records:
            took = clock.monotonic() - began.began
            self._operations.record(
                took, self._metric_attributes(call, error, outcome), began.context
            )

    def _end(
        self, traced: Traced, call: Any, error: str | None, outcome: Outcome, answer: Any
    ) -> None:
        span = traced.span
        if span.is_recording():
            if error is not None:
                span.set_attribute("error.type", error)
                span.set_status(Status(StatusCode.ERROR, getattr(answer, "message", None)))
            if call.method in _NAMES and outcome in ("result", "tool_error"):
                self._name(span, call)
            if isinstance(answer, McpError):
                span.set_attribute("rpc.response.status_code", str(answer.code))
            if not self._is_server and call.sent:
                span.set_attribute("jsonrpc.request.id", str(call.sent[-1].id))
            if self._telemetry.contents and outcome == "result" and call.method == "tools/call":
                span.set_attribute("gen_ai.tool.call.result", _json(answer))
        span.end()

    def _name(self, span: trace.Span, call: Any) -> None:
        """Name what was called, now that it is known to exist."""
        span.set_attribute(_NAMES[call.method], call.params.name)
        span.update_name(f"{call.method} {call.params.name}")

    def _metric_attributes(self, call: Any, error: str | None, outcome: Outcome) -> Attributes:
        method = call.method
        found: Attributes = {"mcp.method.name": method, **self._server}
        key = _NAMES.get(method)
        if key is not None:
            ran = outcome in ("result", "tool_error")
            knows = ran or (self._knows is not None and self._knows(method, call.params.name))
            found[key] = call.params.name if knows else OTHER
        if error is not None:
            code = error.removeprefix("-")
            is_other = code.isdigit() and int(error) not in ERROR_CODES
            found["error.type"] = OTHER if is_other else error
        return found

    # Questions of servers

    def question_began(self, question: Any) -> "Asked | None":
        """Begin a span: a server sends a request, and its client serves it."""
        if not self._telemetry.traces:
            return None
        attributes: Attributes = {"mcp.method.name": question.method, **self._server}
        kind, parent = SpanKind.CLIENT, otel_context.get_current()
        if not self._is_server:
            kind = SpanKind.SERVER
            meta: Any = getattr(question.params, "meta", None)
            if _has_trace(meta):
                parent = propagate.extract(meta, parent, _GETTER)
        span = self._tracer.start_span(question.method, parent, kind, attributes=attributes)
        context = trace.set_span_in_context(span, parent)
        return Asked(span, context, None if self._is_server else otel_context.attach(context))

    def question_meta(self, began: "Asked | None") -> dict[str, str]:
        """Return what tells the client which span the question belongs to."""
        carrier: dict[str, str] = {}
        if began is not None:
            propagate.inject(carrier, began.context)
        return carrier

    def question_ended(
        self, began: "Asked | None", question: Any, outcome: Outcome, answer: Any
    ) -> None:
        """End the span."""
        if began is None:
            return
        error = _error_type(outcome, answer)
        if error is not None:
            began.span.set_attribute("error.type", error)
            began.span.set_status(Status(StatusCode.ERROR, getattr(answer, "message", None)))
        began.span.end()
        if began.token is not None:
            otel_context.detach(began.token)

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
        if began is None or self._sessions is None:
            return
        attributes = {**self._server, **_MEDIA.get(connection.transport.medium, {})}
        if reason is not None:
            attributes["error.type"] = type(reason).__name__
        self._sessions.record(clock.monotonic() - began, attributes)


def _has_trace(meta: Any) -> bool:
    """Whether the `_meta` of a request says which trace it belongs to."""
    return bool(meta) and ("traceparent" in meta or "tracestate" in meta or "baggage" in meta)


def _current_meta() -> dict[str, str]:
    """Return what tells another process which span is the current one."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


def _enter(service: str, meta: Mapping[str, Any]) -> None:
    """Make the span that another process has named the current one."""
    set_up(service)  # this process may have been forked before the server had set it up
    otel_context.attach(propagate.extract(meta, Context(), _GETTER))


def _nothing() -> None:
    pass


def _is_real(histogram: Any) -> bool:
    """Whether what is recorded goes anywhere: the API has a stand-in until a provider is set."""
    try:
        return histogram._real_instrument is not None
    except AttributeError:
        return True


def server_attributes(url: object) -> Attributes:
    """Return where a client finds its server, if that is an address."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        address, port = parts.hostname, parts.port
    except ValueError:
        return {}
    found: Attributes = {} if address is None else {"server.address": address}
    return found if port is None or not found else {**found, "server.port": port}


def _error_type(outcome: Outcome, answer: Any) -> str | None:
    """Return the `error.type` of a call; None if it succeeded."""
    if outcome == "result":
        return None
    if outcome != "error":
        return outcome
    return str(answer.code) if isinstance(answer, McpError) else type(answer).__name__


def _json(contents: Any) -> str:
    return msgspec.json.encode(contents).decode()
