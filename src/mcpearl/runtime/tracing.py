"""The trace of the current task, for what passes it on to another process: gateways, isolated tools.

Nothing is passed on, and nothing looked at, unless `telemetry.otel` has set the two functions because
traces are exported.
"""

from collections.abc import Callable, Mapping
from typing import Any

_current: Callable[[], dict[str, str]] | None = None
_enter: Callable[[Mapping[str, Any]], object] | None = None


def use(
    current: Callable[[], dict[str, str]], enter: Callable[[Mapping[str, Any]], object]
) -> None:
    """Pass traces on from now on.

    Args:
        current: Returns the members of `_meta` that name the current span.
        enter: Makes the span that such members name the current one.
    """
    global _current, _enter
    _current, _enter = current, enter


def is_used() -> bool:
    """Whether traces are passed on."""
    return _current is not None


def carried(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the `_meta` of a request that another process gets, with the span of this one."""
    if _current is None:
        return meta
    return {**(meta or {}), **_current()} or None


def enter(meta: Mapping[str, Any] | None) -> None:
    """Go on with the trace that the `_meta` of a request names."""
    if _enter is not None and meta:
        _enter(meta)
