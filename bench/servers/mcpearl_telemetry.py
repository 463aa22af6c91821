"""A server with telemetry: ``python mcpearl_telemetry.py stdio|<port> off|metrics|… [many]``."""

import logging
import sys
import tempfile
from typing import Any

from mcpearl import Server

kinds = sys.argv[2].split("+")


def trace_one_in_a_hundred() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.01)))
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)


if "traces" in kinds:
    trace_one_in_a_hundred()
app = Server("bench", version="1.0.0", telemetry=None if "traces" in kinds else False)


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fill() -> None:
    """Have as many series as the largest page."""
    metrics = app.measure().metrics
    for number in range(600):
        metrics._admit("tools/call", f"tool-{number}", "", "result").add(0.001, 100)


if __name__ == "__main__":
    if "many" in sys.argv:
        fill()
    if "metrics" in kinds:
        app.measure()
    if sys.argv[1] == "stdio":
        app.run()
    else:
        if "logged" in kinds:
            logging.basicConfig(filename=tempfile.mktemp(), level=logging.INFO)
        access: bool | str = tempfile.mktemp() if "access" in kinds else "logged" in kinds
        metrics = "/metrics" if "metrics" in kinds else None
        app.run("http", port=int(sys.argv[1]), metrics=metrics, access_log=access)
