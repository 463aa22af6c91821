"""How a client reconnects after its connection was lost: when it tries again, and how often."""

from mcpearl.client.targets import Target
from mcpearl.runtime.backoff import Backoff


class Reconnect(Backoff, frozen=True, kw_only=True):
    """When a client tries to connect again, and when it gives up.

    >>> Client("server.py", reconnect=Reconnect(delays=(0.1, 1, 5), max_attempts=20))

    Args:
        delays: seconds before each attempt; the last delay applies to every later attempt.
        jitter: fraction by which a delay may be shorter or longer, so that clients do not all come
            back at the same moment.
        settled_after: seconds a connection has to last before the delays start again from the
            first one; None for as long as the current delay.
        max_attempts: attempts in a row that may fail before the client gives up; None to never
            give up.
    """

    delays: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError("`Reconnect.max_attempts` is at least 1, or None to never give up")


def policy_for(target: Target, wanted: bool | Reconnect | None) -> Reconnect | None:
    """Return how to reconnect to a target; None to not reconnect.

    Args:
        target: what the client connects to.
        wanted: what the application asked for; None to decide by the target.
    """
    if wanted is None:
        wanted = target.restartable
    elif wanted and not target.reopens:
        raise ValueError(
            f"{target.name} can be opened only once, so the client cannot reconnect to it; "
            "pass a command, a file or an address instead"
        )
    if isinstance(wanted, Reconnect):
        return wanted
    return Reconnect() if wanted else None
