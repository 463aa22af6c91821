"""The span of an agent around a call of a client: it stands for the call, as the conventions have it.

Instrumentation of agents makes a span of every tool that a model uses. Where the tool is one of a server,
there would be two spans of one execution.
"""

from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from mcpearl.telemetry.late import Traced
from mcpearl.telemetry.light_spans import LightSpan


class Adopted(Traced):
    """A call whose span is that of an agent. Its name, status and end are left to the agent."""

    __slots__ = ()

    is_own = False


def outer_span(parent: Context, call: Any) -> trace.Span | None:
    """Return the span that traces the execution of this tool already; None if there is none.

    Args:
        parent: The context of the call.
        call: The call of a client.
    """
    if call.method != "tools/call":
        return None
    span = trace.get_current_span(parent)
    if isinstance(span, LightSpan):  # of a server here, whose handler makes the call
        return None
    attributes: Any = (getattr(span, "attributes", None) if span.is_recording() else None) or {}
    is_it = (
        attributes.get("gen_ai.operation.name") == "execute_tool"
        and attributes.get("gen_ai.tool.name") == call.params.name
        and "mcp.method.name" not in attributes  # then it stands for another call
    )
    return span if is_it else None
