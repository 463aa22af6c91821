"""What callers have used of their rates, for all processes of a deployment."""

from collections.abc import Sequence
from typing import Protocol


class RateStore(Protocol):
    """Adds up calls beyond one machine."""

    async def spend(
        self, limit: str, interval: float, calls: Sequence[tuple[str, int]]
    ) -> list[float]:
        """Count calls of several keys; return for each the seconds until it will have used nothing.

        Args:
            limit: What is limited.
            interval: Seconds after which one more call is allowed.
            calls: The keys, each with how many calls it made.

        Raises:
            StoreUnavailable: They could not be counted.
        """
        ...
