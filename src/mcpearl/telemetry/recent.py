"""The last calls of a server or client, for a look at it while it runs."""

from collections import deque
from typing import Any

from msgspec import Struct

from mcpearl.runtime import clock
from mcpearl.runtime.observer import Observer, Outcome
from mcpearl.telemetry.metrics import OTHER

_LONGEST = 128  # characters of a name that are kept


class CallRecord(Struct, frozen=True, gc=False):
    """One call that has ended. It has no contents."""

    at: float
    """When it ended, in seconds since 1970."""
    method: str
    """The method."""
    name: str
    """The tool, prompt or URI; empty where there is none."""
    outcome: Outcome
    """How it ended."""
    seconds: float
    """How long it took."""
    size: int
    """Bytes of the answer."""
    error: str = ""
    """What was wrong, if the outcome is `error`."""


class RecentCalls(Observer):
    """Keeps the last calls, the newest last.

    Args:
        limit: How many.
    """

    def __init__(self, limit: int = 1000) -> None:
        self.calls: deque[CallRecord] = deque(maxlen=limit)
        self.total = 0
        """How many calls have ended since it watches."""

    def call_ended(self, began: float, call: Any, outcome: Outcome, size: int, answer: Any) -> None:
        """Keep a record of the call, in the place of the oldest."""
        self.total += 1
        error = "" if outcome != "error" else str(answer)[: 4 * _LONGEST]
        took = clock.monotonic() - began
        name = name_of(call.params)
        self.calls.append(CallRecord(clock.now(), call.method, name, outcome, took, size, error))


def name_of(params: Any) -> str:
    """Return what a request names: a tool, a prompt, or a URI, cut to a bearable length."""
    name = getattr(params, "name", None) or getattr(params, "uri", None) or ""
    return name[:_LONGEST] if isinstance(name, str) else OTHER
