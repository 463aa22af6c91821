"""The phases of a legacy session, for both ends, as tables.

All rules on which phase follows which, and which messages are allowed in a phase, are in this file.
A session goes

    disconnected -> connecting -> initializing -> ready -> closing -> closed

and from any live phase to `failed` when the connection is lost; `failed` leads back to `connecting`
to reconnect, or to `closed`. The client's end is `connecting` while the transport opens and
`initializing` from sending `initialize` until its answer. The server's end is `connecting` until it
receives `initialize`, and `initializing` until `notifications/initialized`; requests that come in
between are served, as other servers do. A server's end may be initialized anew: relays share one
server process among clients that come one after the other. Modern requests have no session, so the
tables do not apply to them. A client passes through the same phases in both eras
while it connects and reconnects (`client/link.py`).
"""

from enum import StrEnum
from typing import Literal

from mcpearl.protocol.errors import McpearlError

EndRole = Literal["client", "server"]
Step = Literal["connect", "initialize", "initialized", "renew", "close", "closed", "lose"]
"""An event in the life of a session."""


class Phase(StrEnum):
    """The phase of a session, or of a client over its successive connections."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    INITIALIZING = "initializing"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


_LIVE: dict[Step, Phase] = {
    "close": Phase.CLOSING,
    "closed": Phase.CLOSED,
    "lose": Phase.FAILED,
}

TRANSITIONS: dict[Phase, dict[Step, Phase]] = {
    Phase.DISCONNECTED: {"connect": Phase.CONNECTING, "close": Phase.CLOSED},
    Phase.CONNECTING: {"initialize": Phase.INITIALIZING, **_LIVE},
    Phase.INITIALIZING: {
        "initialized": Phase.READY,
        "renew": Phase.INITIALIZING,
        **_LIVE,
    },
    Phase.READY: {"renew": Phase.INITIALIZING, **_LIVE},
    Phase.CLOSING: {"closed": Phase.CLOSED, "lose": Phase.CLOSED},
    Phase.FAILED: {"connect": Phase.CONNECTING, "close": Phase.CLOSED},
    Phase.CLOSED: {},
}

# The methods an end may receive in each phase; None means all of its version. Answers are always
# accepted: `pending` decides about them.
_NOTHING: frozenset[str] = frozenset()
_ALWAYS = frozenset({"ping"})
_QUIET = frozenset({"notifications/cancelled", "notifications/progress", "notifications/message"})

RECEIVABLE: dict[EndRole, dict[Phase, frozenset[str] | None]] = {
    "server": {
        Phase.DISCONNECTED: _NOTHING,
        Phase.CONNECTING: _ALWAYS | {"initialize"},
        Phase.INITIALIZING: None,
        Phase.READY: None,
        Phase.CLOSING: _ALWAYS | _QUIET,
        Phase.CLOSED: _NOTHING,
        Phase.FAILED: _NOTHING,
    },
    "client": {
        Phase.DISCONNECTED: _NOTHING,
        Phase.CONNECTING: _ALWAYS | _QUIET,
        Phase.INITIALIZING: _ALWAYS | _QUIET,
        Phase.READY: None,
        Phase.CLOSING: _ALWAYS | _QUIET,
        Phase.CLOSED: _NOTHING,
        Phase.FAILED: _NOTHING,
    },
}


class WrongPhase(McpearlError):
    """A step that the table does not have: a bug of this side, never the peer's fault."""


class Lifecycle:
    """One end of a session, with its current phase."""

    __slots__ = ("_receivable", "phase", "role")

    def __init__(self, role: EndRole) -> None:
        self.role = role
        self.phase = Phase.DISCONNECTED
        self._receivable = RECEIVABLE[role]

    def can(self, step: Step) -> bool:
        """Return whether the table has this step from the current phase."""
        return step in TRANSITIONS[self.phase]

    def take(self, step: Step) -> Phase:
        """Go to the next phase. Raises `WrongPhase` if the table does not have the step."""
        following = TRANSITIONS[self.phase].get(step)
        if following is None:
            raise WrongPhase(f"{step!r} is not possible while {self.phase.value}")
        self.phase = following
        return following

    def refuse(self, method: str) -> str | None:
        """Return why `method` may not be received now, or None if it may."""
        allowed = self._receivable[self.phase]
        if allowed is None:
            if method != "initialize":
                return None
            return "The session is already initialized; begin another one without its id"
        if method in allowed:
            return None
        if method == "initialize":
            return f"`initialize` was already received; the session is {self.phase.value}"
        if self.phase is Phase.CONNECTING:
            return f"`{method}` before `initialize`"
        if self.phase is Phase.INITIALIZING:
            return f"`{method}` before `notifications/initialized`"
        return f"`{method}` while the session is {self.phase.value}"
