"""Metrics as Prometheus reads them, in the text format 0.0.4.

`METRICS` is the list of all metrics; dashboards and alerts are checked against it. The durations have the
names and labels that an OpenTelemetry collector makes of the MCP semantic conventions, so that a query
works for both.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from msgspec import Struct

from mcpearl.telemetry.metrics import BOUNDS, Key, MetricsSnapshot, Numbers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SLICE = 40  # series that are rendered before the event loop goes on
_LES = (*(f'le="{bound:g}"' for bound in BOUNDS), 'le="+Inf"')
_OPERATION = "mcp_server_operation_duration_seconds"
_SESSION = "mcp_server_session_duration_seconds"
_ANSWERS = "mcpearl_answer_bytes_total"


class Metric(Struct, frozen=True):
    """One metric: where its numbers are in a snapshot, and how they are shown."""

    name: str
    kind: str
    help: str
    label: str = ""
    """The label by which there are several numbers."""


METRICS: dict[str, Metric] = {
    "operation": Metric(_OPERATION, "histogram", "Time from a request to its answer."),
    "answers": Metric(_ANSWERS, "counter", "Bytes of answers."),
    "session": Metric(_SESSION, "histogram", "How long clients and sessions stayed.", "wire"),
    "connections": Metric(
        "mcpearl_sessions_total", "counter", "Clients and sessions that came.", "wire"
    ),
    "received": Metric(
        "mcpearl_received_bytes_total", "counter", "Bytes that clients sent.", "wire"
    ),
    "sent": Metric("mcpearl_sent_bytes_total", "counter", "Bytes sent to clients.", "wire"),
    "bounds": Metric(
        "mcpearl_bounds_reached_total",
        "counter",
        "How often a limit was reached, rate limits among them.",
        "bound",
    ),
    "worker_starts": Metric("mcpearl_worker_starts_total", "counter", "Workers that were started."),
    "blocked.times": Metric(
        "mcpearl_loop_blocked_total", "counter", "How often a call held up the event loop."
    ),
    "blocked.seconds": Metric(
        "mcpearl_loop_blocked_seconds_total",
        "counter",
        "For how long calls held up the event loop.",
    ),
    "open_connections": Metric(
        "mcpearl_connections", "gauge", "Connections that are open.", "wire"
    ),
    "connections_": Metric("mcpearl_connections", "gauge", "Connections that are open.", "wire"),
    "sessions": Metric(
        "mcpearl_sessions", "gauge", "Clients and sessions that are there now.", "wire"
    ),
    "processes": Metric("mcpearl_processes", "gauge", "Processes that serve."),
    "restarts": Metric(
        "mcpearl_restarts", "gauge", "How often parts of the running server were restarted.", "part"
    ),
    "parts_up": Metric(
        "mcpearl_part_up", "gauge", "Processes in which a part of the server is up.", "part"
    ),
    "upstreams": Metric(
        "mcpearl_upstreams", "gauge", "Servers behind a gateway, by how they stand.", "state"
    ),
    "store_up": Metric("mcpearl_store_up", "gauge", "Processes that reach the shared store."),
    "isolated_waiting": Metric(
        "mcpearl_isolated_waiting", "gauge", "Calls that wait for an isolated process."
    ),
    "parts_down": Metric("mcpearl_parts_down", "gauge", "Parts of the server that are down."),
    "ready": Metric(
        "mcpearl_ready", "gauge", "Processes that are ready, as far as is known without checks."
    ),
    "tasks_ended_": Metric(
        "mcpearl_tasks_ended_total", "counter", "Tasks that ended in these processes.", "state"
    ),
    "tasks_": Metric("mcpearl_tasks", "gauge", "Tasks of these processes.", "state"),
    "lag": Metric("mcpearl_loop_lag_seconds", "gauge", "How late the event loop runs its timers."),
    "lag_max": Metric(
        "mcpearl_loop_lag_max_seconds", "gauge", "The same, at worst within the last minute."
    ),
    "process_cpu_seconds": Metric("process_cpu_seconds_total", "counter", "Processor time."),
    "process_resident_memory_bytes": Metric(
        "process_resident_memory_bytes", "gauge", "Resident memory."
    ),
    "process_open_fds": Metric("process_open_fds", "gauge", "Open file descriptors."),
    # Of the server's own counters.
    "calls_in_flight": Metric("mcpearl_calls_in_flight", "gauge", "Calls that run."),
    "requests_waiting": Metric(
        "mcpearl_requests_waiting", "gauge", "Requests of handlers that clients have not answered."
    ),
    "messages_malformed": Metric(
        "mcpearl_messages_malformed", "gauge", "Invalid messages of the clients that are connected."
    ),
    "answers_late": Metric(
        "mcpearl_answers_late", "gauge", "Answers of connected clients that came too late."
    ),
    "answers_unknown": Metric(
        "mcpearl_answers_unknown", "gauge", "Answers of connected clients to nothing."
    ),
    "handlers_unwinding": Metric(
        "mcpearl_handlers_unwinding", "gauge", "Handlers that were cancelled and have not ended."
    ),
    "bytes_held": Metric("mcpearl_held_bytes", "gauge", "Bytes held for clients, in all."),
    "bytes_limit": Metric(
        "mcpearl_held_bytes_limit", "gauge", "Bytes that may be held for clients, in all."
    ),
    "bytes_held_": Metric(
        "mcpearl_held_bytes_by_kind", "gauge", "Bytes held for clients, by what they are.", "kind"
    ),
    "subscriptions_": Metric("mcpearl_subscriptions", "gauge", "Subscriptions of clients.", "kind"),
    "requests": Metric("mcpearl_http_requests", "gauge", "HTTP requests being answered."),
    "refused_": Metric(
        "mcpearl_http_refused_total",
        "counter",
        "HTTP requests that were refused as such, whatever their message asks for.",
        "status",
    ),
    "streams": Metric("mcpearl_streams", "gauge", "HTTP streams that wait for something to send."),
    "threads": Metric("mcpearl_threads", "gauge", "Threads of plain handlers."),
    "threads_waiting": Metric("mcpearl_threads_waiting", "gauge", "Calls that wait for a thread."),
    "receipts_up": Metric(
        "mcpearl_receipts_up", "gauge", "Processes whose calls are recorded now."
    ),
    "receipts_waiting": Metric(
        "mcpearl_receipts_waiting_bytes", "gauge", "Receipts that are not written yet."
    ),
    "calls_unrecorded": Metric(
        "mcpearl_calls_unrecorded_total",
        "counter",
        "Calls and other requests that were answered although they could not be recorded.",
    ),
}
_PREFIXES = tuple(name for name in METRICS if name.endswith("_"))
_OTHER = Metric("mcpearl_other", "gauge", "Counters that have no metric of their own.", "counter")


async def render(snapshot: MetricsSnapshot) -> bytes:
    """Render a snapshot in slices, between which the loop does other things."""
    parts: list[bytes] = []
    for part in slices(snapshot):
        parts.append(part.encode(errors="replace"))
        await asyncio.sleep(0)
    return b"".join(parts)


def slices(snapshot: MetricsSnapshot) -> Iterator[str]:
    """Yield the text of a snapshot in parts that take a fraction of a millisecond each."""
    yield from _family(METRICS["operation"], snapshot.calls.items(), _operation)
    yield from _family(METRICS["answers"], snapshot.calls.items(), _answers)
    yield from _family(METRICS["session"], snapshot.sessions.items(), _session)
    found: dict[str, tuple[Metric, list[str]]] = {}
    for metric, label, number in (*_counters(snapshot), *_gauges(snapshot)):
        labels = f'{{{metric.label}="{_escaped(label)}"}}' if metric.label else ""
        lines = found.setdefault(metric.name, (metric, []))[1]
        lines.append(f"{metric.name}{labels} {number:.15g}\n")
    yield "".join(_head(metric) + "".join(lines) for metric, lines in found.values())


def _head(metric: Metric) -> str:
    return f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"


def _family(
    metric: Metric, series: Iterable[tuple[Any, Numbers]], line: Callable[[Any, Numbers], str]
) -> Iterator[str]:
    lines = [_head(metric)]
    for key, numbers in series:
        lines.append(line(key, numbers))
        if len(lines) >= _SLICE:
            yield "".join(lines)
            lines = []
    yield "".join(lines)


def _operation(key: Key, numbers: Numbers) -> str:
    return _histogram(_OPERATION, _labels_of(key), numbers)


def _session(wire: str, numbers: Numbers) -> str:
    return _histogram(_SESSION, f'wire="{_escaped(wire)}"', numbers)


def _answers(key: Key, numbers: Numbers) -> str:
    return f"{_ANSWERS}{{{_labels_of(key)}}} {numbers[1]}\n"


def _histogram(name: str, labels: str, numbers: Numbers) -> str:
    counts = list(accumulate(numbers[2:]))
    begin = f"{name}_bucket{{{labels},"
    lines = [f"{begin}{le}}} {count}\n" for le, count in zip(_LES, counts, strict=True)]
    lines.append(
        f"{name}_sum{{{labels}}} {numbers[0]:.9g}\n{name}_count{{{labels}}} {counts[-1]}\n"
    )
    return "".join(lines)


def _labels_of(key: Key) -> str:
    method, name, error = key
    labels = f'mcp_method_name="{_escaped(method)}"'
    if name:
        kind = "prompt" if method == "prompts/get" else "tool"
        labels += f',gen_ai_{kind}_name="{_escaped(name)}"'
    return f'{labels},error_type="{_escaped(error)}"' if error else labels


def _counters(snapshot: MetricsSnapshot) -> Iterator[tuple[Metric, str, float]]:
    for name, labelled in snapshot.counters.items():
        for label, number in labelled.items():
            metric = METRICS.get(f"{name}.{label}")
            yield metric or METRICS[name], label, number


def _gauges(snapshot: MetricsSnapshot) -> Iterator[tuple[Metric, str, float]]:
    for name, labelled in snapshot.gauges.items():
        for label, number in labelled.items():
            yield (METRICS[name], label, number) if name != "server" else _of_server(label, number)


def _of_server(name: str, number: float) -> tuple[Metric, str, float]:
    """Return the metric of one of the server's own counters."""
    if name in METRICS:
        return METRICS[name], "", number
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return METRICS[prefix], name.removeprefix(prefix), number
    return _OTHER, name, number


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
