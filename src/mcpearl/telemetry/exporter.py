"""The exporter of a server as a part of its tree: sets up OpenTelemetry, and notes what is not exported.

The SDK exports in threads of its own, which nothing here restarts. What they report is found in the log
of OpenTelemetry, since its exporters tell nothing else of what they could not send.
"""

import asyncio
import logging
import threading

from opentelemetry import metrics, trace

from mcpearl.runtime.tree import Node, State
from mcpearl.telemetry.sdk import set_up

_LOGS = "opentelemetry"
_EXPORTING = (
    "opentelemetry.exporter.",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
    "opentelemetry.sdk.trace.export",
)
_LONGEST = 300  # characters kept of an error
# What the SDK exports, a word in the names of its loggers, and the thread that does it.
_KINDS = (
    ("spans", ("trace", "span"), "OtelBatchSpanRecordProcessor"),
    ("metrics", ("metric",), "OtelPeriodicExportingMetricReader"),
)


class ExporterPart(logging.Handler):
    """A service: while it runs, it hears what the SDK could not export.

    Args:
        service: The name of the service, unless the environment has one.
    """

    def __init__(self, service: str) -> None:
        super().__init__(logging.WARNING)
        self._service = service
        self._failures = {kind: 0 for kind, _, _ in _KINDS}
        self._errors: dict[str, str] = {}
        self._seen: set[str] = set()  # the kinds whose thread was seen alive

    async def start(self) -> None:
        """Set up the SDK if the environment says where to export to; listen to its log."""
        set_up(self._service)
        logging.getLogger(_LOGS).addHandler(self)

    async def ended(self) -> None:
        """Wait: it does not end by itself."""
        await asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        """Stop listening. What is left is exported by `Running`."""
        logging.getLogger(_LOGS).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Note what the SDK logs about an export that failed, in whatever thread."""
        if not record.name.startswith(_EXPORTING):
            return
        try:
            text = record.getMessage()
        except Exception:
            text = str(record.msg)
        about = f"{record.name} {text}".lower()
        for kind, words, _ in _KINDS:
            if any(word in about for word in words):
                self._failures[kind] += 1
                self._errors[kind] = text[:_LONGEST]
                return

    def tree(self) -> Node:
        """Return what the SDK exports, as parts of the exporter."""
        alive = {each.name for each in threading.enumerate()}
        providers = {"spans": trace.get_tracer_provider(), "metrics": metrics.get_meter_provider()}
        parts = [
            self._node(kind, thread in alive)
            for kind, _, thread in _KINDS
            if hasattr(providers[kind], "force_flush")  # it is one of the SDK
        ]
        return Node(name="exporter", state="running", children=tuple(parts))

    def _node(self, kind: str, alive: bool) -> Node:
        """Return what exports one kind; each failed export counts as a restart."""
        state: State = "running"
        error = self._errors.get(kind)
        if alive:
            self._seen.add(kind)
        elif kind in self._seen:  # one without a thread exports in the one that ends a span
            state, error = "failed", f"the thread that exports {kind} has ended"
        return Node(name=kind, state=state, restarts=self._failures[kind], last_error=error)
