"""What a page may ask of its console: one record for each, told apart by `do`."""

from typing import Any, Literal

from msgspec import Struct, field


class Action(Struct, tag_field="do", forbid_unknown_fields=True, kw_only=True):
    """Base of what a page asks."""


class OpenServer(Action, tag="open"):
    """Connect to a server, in one version of the protocol or whichever it speaks."""

    target: str
    protocol: str = "auto"


class SendRequest(Action, tag="ask"):
    """Send a request to the server; its answer comes as an event with the same `id`."""

    id: int
    method: str
    params: dict[str, Any] = field(default_factory=dict)
    timeout: float = 300.0
    task: bool = False
    """Whether a tool is to run as a task."""


class CancelRequest(Action, tag="cancel"):
    """Cancel a request."""

    id: int


class AnswerQuestion(Action, tag="answer"):
    """Answer a question of the server."""

    question: int
    result: dict[str, Any] | None = None
    """The result; None refuses."""


class Roots(Action, tag="roots"):
    """Choose the folders that the server may work in."""

    uris: list[str]


class Send(Action, tag="send"):
    """Send a message as it was written."""

    text: str


class Follow(Action, tag="follow"):
    """Show all calls of one session, trace or tool; without a value, those there is room for."""

    by: Literal["session", "trace", "name"] | None = None
    value: str = ""


class StopCall(Action, tag="stop_call"):
    """Stop a call of a client, which is answered with an error."""

    number: int
    worker: int | None = None
    """The worker that has the call; by default the one that has the page."""


class EndSession(Action, tag="end_session"):
    """End the session of a client."""

    number: int
    worker: int | None = None
    """The worker that has the session; by default the one that has the page."""


class RestartChild(Action, tag="restart_child"):
    """Restart a part of the supervision tree."""

    path: list[str]
    """The names of the part and of those above it, without the root; empty for a whole worker."""
    worker: int | None = None
    """The worker that has the part; by default the one that has the page."""


Operation = StopCall | EndSession | RestartChild
"""What changes the server, in the worker that it names."""

AnyAction = (
    OpenServer
    | SendRequest
    | CancelRequest
    | AnswerQuestion
    | Roots
    | Send
    | Follow
    | StopCall
    | EndSession
    | RestartChild
)
