"""Passes the trace of the current task on to another process; used by gateways and isolated tools.

This does nothing unless traces are exported: then `telemetry.otel` has set two functions. Logs and
receipts only need the ids that a request names: `ids_of`.
"""

from collections.abc import Callable, Mapping
from typing import Any

_HEXADECIMAL = frozenset("0123456789abcdef")
_SHORTEST = 55  # characters of `traceparent`

_current: Callable[[], dict[str, str]] | None = None
_enter: Callable[[Mapping[str, Any]], object] | None = None


def ids_of(parent: Any) -> tuple[str, str] | None:
    """Return the ids of the trace and the span that `traceparent` names; None if it is not valid.

    Args:
        parent: The member of `_meta`, as a client sent it.
    """
    if not isinstance(parent, str) or len(parent) < _SHORTEST:
        return None
    if not (parent[2] == parent[35] == parent[52] == "-"):
        return None
    trace, span = parent[3:35], parent[36:52]
    return (trace, span) if _HEXADECIMAL.issuperset(trace + span) else None


def use(
    current: Callable[[], dict[str, str]], enter: Callable[[Mapping[str, Any]], object]
) -> None:
    """Pass traces on from now on, with these functions.

    Args:
        current: Returns the members of `_meta` that identify the current span.
        enter: Makes the span that such members identify the current one.
    """
    global _current, _enter
    _current, _enter = current, enter


def is_used() -> bool:
    """Whether traces are passed on."""
    return _current is not None


def carried(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the `_meta` of a request to another process, with the current span added."""
    if _current is None:
        return meta
    return {**(meta or {}), **_current()} or None


def enter(meta: Mapping[str, Any] | None) -> None:
    """Continue the trace that the `_meta` of a request identifies."""
    if _enter is not None and meta:
        _enter(meta)
