"""Log records as JSON, and the ids of the call that each belongs to.

The ids join logs with traces and receipts: that of the request, and those of its trace and span. They
come from the context of the call, so that records of handlers, in threads too, have them.
"""

import logging
import sys
import time
from contextvars import ContextVar
from typing import Any

import msgspec

from mcpearl.runtime import served
from mcpearl.runtime.observer import Observer
from mcpearl.runtime.tracing import ids_of
from mcpearl.telemetry.recent import name_of

_call: ContextVar[Any] = ContextVar("mcpearl_call", default=None)
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class CallContext(Observer):
    """Remembers the call in the context of its handler, for the records that are logged there."""

    def call_began(self, call: Any) -> Any:
        """Note the call."""
        return call

    def call_entered(self, began: Any) -> None:
        """Remember it in the handler's task, and for the line of the access log."""
        _call.set(began)
        served.append()


def ids() -> dict[str, str]:
    """Return the ids of the current call, as far as they exist: `request_id`, `trace_id`, `span_id`."""
    found: dict[str, str] = {}
    call = _call.get()
    if call is not None:
        found["request_id"] = str(call.id)[:128]
        found["method"] = call.method
        if call.method in ("tools/call", "prompts/get"):
            found["name"] = name_of(call.params)
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            return found | {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
    return found | _trace_of(call)


def _trace_of(call: Any) -> dict[str, str]:
    """Return the ids of the trace that a request names, where nothing is traced here."""
    meta = getattr(getattr(call, "params", None), "meta", None)
    named = ids_of(meta.get("traceparent")) if meta else None
    return {} if named is None else {"trace_id": named[0], "span_id": named[1]}


class AddIds(logging.Filter):
    """Adds the ids of the current call to every record that a handler writes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add them."""
        for name, value in ids().items():
            if not hasattr(record, name) or name == "name":
                setattr(record, "tool" if name == "name" else name, value)
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, on one line.

    It has `time`, `level`, `logger` and `message`; `error` with the traceback, if there is one; the ids
    of the call; and what the application passed as `extra`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        found: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            found["stack"] = record.stack_info
        found |= {name: value for name, value in vars(record).items() if name not in _OWN}
        try:
            return msgspec.json.encode(found, enc_hook=repr).decode()
        except Exception:  # of an object of the application's
            return msgspec.json.encode(
                {name: repr(value) for name, value in found.items()}
            ).decode()

    converter = staticmethod(time.gmtime)
