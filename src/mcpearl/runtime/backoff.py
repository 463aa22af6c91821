"""Back-off: how long to wait before each attempt at something that keeps failing.

`Backoff` is the policy and has no state. `Retries` counts the attempts at one thing under a policy,
and starts again from the first delay when the thing worked for long enough.
"""

from collections.abc import Callable

from msgspec import Struct

from mcpearl.runtime import clock


def doubling(first: float, maximum: float) -> tuple[float, ...]:
    """Return delays that double from `first` and end at `maximum`.

    >>> doubling(1.0, 5.0)
    (1.0, 2.0, 4.0, 5.0)
    """
    delays = [first]
    while 0 < delays[-1] < maximum:
        delays.append(min(delays[-1] * 2, maximum))
    return tuple(delays)


def _chance() -> float:
    return clock.uniform(0.0, 1.0)


class Backoff(Struct, frozen=True, kw_only=True):
    """Growing delays with jitter.

    >>> Backoff(delays=(0.5, 1.0, 2.0), jitter=0.25).delay(0)
    """

    delays: tuple[float, ...]
    """Seconds before each attempt; the last delay applies to every later attempt."""
    jitter: float = 0.25
    """Fraction by which a delay may be longer or shorter, to spread attempts out."""
    settled_after: float | None = None
    """Seconds something has to work before the delays start again from the first; None for as long as
    the current delay."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not self.delays or min(self.delays) < 0:
            raise ValueError(f"`{name}.delays` needs at least one figure, and none below 0")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"`{name}.jitter` is between 0 and 1")

    def nominal(self, attempt: int) -> float:
        """Return the delay before an attempt without jitter.

        Args:
            attempt: number of the attempt; the first is 0.
        """
        return self.delays[min(attempt, len(self.delays) - 1)]

    def delay(self, attempt: int, chance: Callable[[], float] = _chance) -> float:
        """Return the seconds to wait before an attempt.

        Args:
            attempt: number of the attempt; the first is 0.
            chance: returns a random number from 0 to 1.
        """
        return self.nominal(attempt) * (1 + self.jitter * (2 * chance() - 1))


class Retries:
    """Counts the attempts at one thing.

    >>> retries = Retries(Backoff(delays=(1.0, 2.0)))
    >>> await asyncio.sleep(retries.next_delay())
    """

    __slots__ = ("_backoff", "_chance", "attempts")

    def __init__(self, backoff: Backoff, chance: Callable[[], float] = _chance) -> None:
        self._backoff = backoff
        self._chance = chance
        self.attempts = 0
        """Attempts since the thing last worked for long enough."""

    def next_delay(self) -> float:
        """Count an attempt and return the seconds to wait before it."""
        attempt = self.attempts
        self.attempts += 1
        return self._backoff.delay(attempt, self._chance)

    def start_over(self) -> None:
        """Start again from the first delay: the thing works."""
        self.attempts = 0

    def worked_for(self, seconds: float) -> None:
        """Start again from the first delay if the thing worked for long enough before it failed."""
        settled = self._backoff.settled_after
        if seconds > (self._backoff.nominal(self.attempts) if settled is None else settled):
            self.start_over()
