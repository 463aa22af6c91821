"""The life of a legacy session, for both ends, as tables.

Everything that says which phase follows which, and what may travel in which phase, is in this file
and nowhere else. A session goes

    disconnected -> connecting -> initializing -> ready -> closing -> closed

and from any live phase to `failed` when the connection is lost; `failed` goes back to `connecting`
to reconnect, or on to `closed`. The client's end is `connecting` while the transport opens and
`initializing` from sending `initialize` until its answer; the server's end is `connecting` while
nothing was asked yet and `initializing` from `initialize` until `notifications/initialized`.
Modern requests have no session and pass by these tables; a client of either era, whose connections
follow one another, goes through the same phases (`client/link.py`).
"""

from enum import Enum, StrEnum
from typing import Literal

from mcpearl.protocol.errors import McpearlError

Role = Literal["client", "server"]


class Phase(StrEnum):
    """Where a session stands, and so a client, whose sessions follow one another."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    INITIALIZING = "initializing"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


class Step(Enum):
    """What happens to a session."""

    CONNECT = "connect"
    INITIALIZE = "initialize"
    INITIALIZED = "initialized"
    CLOSE = "close"
    CLOSED = "closed"
    LOSE = "lose"


_LIVE: dict[Step, Phase] = {
    Step.CLOSE: Phase.CLOSING,
    Step.CLOSED: Phase.CLOSED,
    Step.LOSE: Phase.FAILED,
}

TRANSITIONS: dict[Phase, dict[Step, Phase]] = {
    Phase.DISCONNECTED: {Step.CONNECT: Phase.CONNECTING, Step.CLOSE: Phase.CLOSED},
    Phase.CONNECTING: {Step.INITIALIZE: Phase.INITIALIZING, **_LIVE},
    Phase.INITIALIZING: {Step.INITIALIZED: Phase.READY, **_LIVE},
    Phase.READY: {**_LIVE},
    Phase.CLOSING: {Step.CLOSED: Phase.CLOSED, Step.LOSE: Phase.CLOSED},
    Phase.FAILED: {Step.CONNECT: Phase.CONNECTING, Step.CLOSE: Phase.CLOSED},
    Phase.CLOSED: {},
}

# What an end may receive in each phase; None means everything its version has. Answers to requests
# that are waiting are welcome always: `pending` judges them.
_NOTHING: frozenset[str] = frozenset()
_ALWAYS = frozenset({"ping"})
_QUIET = frozenset({"notifications/cancelled", "notifications/progress", "notifications/message"})

RECEIVABLE: dict[Role, dict[Phase, frozenset[str] | None]] = {
    "server": {
        Phase.DISCONNECTED: _NOTHING,
        Phase.CONNECTING: _ALWAYS | {"initialize"},
        Phase.INITIALIZING: _ALWAYS | _QUIET | {"notifications/initialized"},
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
    """A step the table does not have. It means a mistake of this side, never of the peer."""


class Lifecycle:
    """One end of one session, and the phase it is in."""

    __slots__ = ("_receivable", "phase", "role")

    def __init__(self, role: Role) -> None:
        self.role = role
        self.phase = Phase.DISCONNECTED
        self._receivable = RECEIVABLE[role]

    def can(self, step: Step) -> bool:
        """Whether the table has this step from here."""
        return step in TRANSITIONS[self.phase]

    def take(self, step: Step) -> Phase:
        """Go where the table says, or raise `WrongPhase`."""
        following = TRANSITIONS[self.phase].get(step)
        if following is None:
            raise WrongPhase(f"{step.value!r} is not possible while {self.phase.value}")
        self.phase = following
        return following

    def refuse(self, method: str) -> str | None:
        """Say why `method` may not be received now; None when it may."""
        allowed = self._receivable[self.phase]
        if allowed is None:
            return "The session is already initialized" if method == "initialize" else None
        if method in allowed:
            return None
        if method == "initialize":
            return f"`initialize` was already received; the session is {self.phase.value}"
        if self.phase is Phase.CONNECTING:
            return f"`{method}` before `initialize`"
        if self.phase is Phase.INITIALIZING:
            return f"`{method}` before `notifications/initialized`"
        return f"`{method}` while the session is {self.phase.value}"
