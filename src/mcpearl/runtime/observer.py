"""What a server tells those who watch it: calls, connections, sessions, and bounds that were reached.

An observer is bound once, when the server is made. Without one, a call does no work for it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

from mcpearl.protocol.events import Call

logger = logging.getLogger("mcpearl.server")

Outcome = Literal["result", "tool_error", "error", "cancelled"]
Counters = Callable[[], Mapping[str, int]]


class Observer:
    """Subclass it and override what you want to be told; every method does nothing by default.

    All methods run on the server's event loop and must not block. One that raises is logged, and the
    call goes on.

    >>> class Slow(Observer):
    ...     def call_began(self, call):
    ...         return time.monotonic()
    ...
    ...     def call_ended(self, began, call, outcome, size):
    ...         if time.monotonic() - began > 1:
    ...             print(call.method, outcome, size)
    >>> app = Server("weather", observer=Slow())
    """

    def started(self, counters: Counters) -> None:
        """Note that a server was made.

        Args:
            counters: Returns the server's counters when called: what is open, in flight, refused.
        """

    def call_began(self, call: Call) -> Any:
        """Note that a call begins.

        Args:
            call: The call, with its method, params and caller.

        Returns:
            Anything; `call_ended` is given it.
        """

    def call_ended(self, began: Any, call: Call, outcome: Outcome, size: int) -> None:
        """Note that a call is over.

        Args:
            began: What `call_began` returned.
            call: The call.
            outcome: How it ended. `tool_error` is a tool's result with `isError`.
            size: Bytes of the answer; 0 for a call that was cancelled.
        """

    def connection_began(self, connection: object) -> None:
        """Note that a client connected, or a session began.

        Args:
            connection: The server's side of it; the same object when it ends.
        """

    def connection_ended(self, connection: object, reason: Exception | None) -> None:
        """Note that a client or session is gone.

        Args:
            connection: What `connection_began` was given.
            reason: What ended it; None for an orderly end.
        """

    def bound_reached(self, bound: str, detail: str) -> None:
        """Note that a limit was reached.

        Args:
            bound: The setting, such as `Limits.max_in_flight`.
            detail: What was refused or dropped.
        """


class Guarded:
    """An observer whose failures are logged and go no further."""

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def started(self, counters: Counters) -> None:
        """Pass on that a server was made."""
        self._tell("started", counters)

    def call_began(self, call: Call) -> Any:
        """Pass on that a call begins, and return what the observer returned."""
        return self._tell("call_began", call)

    def call_ended(self, began: Any, call: Call, outcome: Outcome, size: int) -> None:
        """Pass on that a call is over."""
        self._tell("call_ended", began, call, outcome, size)

    def connection_began(self, connection: object) -> None:
        """Pass on that a client connected."""
        self._tell("connection_began", connection)

    def connection_ended(self, connection: object, reason: Exception | None) -> None:
        """Pass on that a client is gone."""
        self._tell("connection_ended", connection, reason)

    def bound_reached(self, bound: str, detail: str) -> None:
        """Pass on that a limit was reached."""
        self._tell("bound_reached", bound, detail)

    def _tell(self, event: str, *details: Any) -> Any:
        try:
            return getattr(self._observer, event)(*details)
        except Exception:
            logger.exception("the observer %r failed on `%s`", self._observer, event)
            return None
