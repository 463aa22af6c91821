"""How a client comes back after its connection was lost: when it tries again, and how often."""

from msgspec import Struct

from mcpearl.runtime import clock


class Reconnect(Struct, frozen=True, kw_only=True):
    """When to try again, and when to give up.

    >>> Client("server.py", reconnect=Reconnect(delays=(0.1, 1, 5), max_attempts=20))
    """

    delays: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
    """Seconds before each attempt; the last one is used from then on."""
    max_attempts: int | None = None
    """Attempts in a row that may fail before the client gives up; None to never give up."""
    jitter: float = 0.25
    """How far a delay may be from its figure, so that not all clients come back at once."""

    def __post_init__(self) -> None:
        if not self.delays or min(self.delays) < 0:
            raise ValueError("`Reconnect.delays` needs at least one figure, and none below 0")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError("`Reconnect.max_attempts` is at least 1, or None to never give up")
        if not 0 <= self.jitter <= 1:
            raise ValueError("`Reconnect.jitter` is between 0 and 1")

    def delay(self, attempt: int) -> float:
        """Seconds to wait before an attempt; the first is number 0."""
        return self.nominal(attempt) * clock.uniform(1 - self.jitter, 1 + self.jitter)

    def nominal(self, attempt: int) -> float:
        """Give the same without jitter."""
        return self.delays[min(attempt, len(self.delays) - 1)]
