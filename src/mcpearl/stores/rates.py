"""How much of their rate limits callers have used, across all processes of a deployment."""

from collections.abc import Sequence
from typing import Protocol


class RateStore(Protocol):
    """Counts calls across machines."""

    async def spend(
        self, limit: str, interval: float, calls: Sequence[tuple[str, int]]
    ) -> list[float]:
        """Count calls of several keys; return for each the seconds until its rate is unused again.

        Args:
            limit: The name of the limit.
            interval: Seconds after which one more call is allowed.
            calls: The keys, each with how many calls it made.

        Raises:
            StoreUnavailable: The calls could not be counted.
        """
        ...
