"""A collector: takes what the OTLP exporter sends over HTTP, with the official protobuf messages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Collector:
    """What arrived, as records that are easy to compare."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.metrics: dict[str, list[Any]] = {}
        self.services: set[str] = set()
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

        if path == "/v1/traces":
            sent = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            for resource in sent.resource_spans:
                self.services.add(attributes(resource.resource.attributes)["service.name"])
                for scope in resource.scope_spans:
                    self.spans += [_span(span) for span in scope.spans]
        elif path == "/v1/metrics":
            metrics = metrics_service_pb2.ExportMetricsServiceRequest.FromString(body)
            for resource in metrics.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        self.metrics.setdefault(metric.name, []).extend(
                            (attributes(point.attributes), point, metric.unit)
                            for point in metric.histogram.data_points
                        )

    def named(self, name: str, kind: str) -> dict[str, Any]:
        """The one span of this name and kind."""
        (found,) = (each for each in self.spans if each["name"] == name and each["kind"] == kind)
        return found


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _span(span: Any) -> dict[str, Any]:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

    return {
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "status": Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        "message": span.status.message,
        "links": [link.trace_id.hex() for link in span.links],
        **attributes(span.attributes),
    }


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port of this machine."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
