"""Limited places that clients compete for: sessions with an upstream, parked calls, subscriptions.

A client that takes as many places as it can, and never gives one back, must leave some for the others.
"""

from collections import Counter
from collections.abc import Hashable

from mcpearl.protocol.errors import LimitReached


class Shares:
    """A number of places. A client gets at most half of those that the others have left.

    Args:
        limit: How many places there are.
        taken: The message when all places are taken, such as "10 calls are parked already".
        option: The name of the option that sets the limit.
    """

    def __init__(self, limit: int, taken: str, option: str) -> None:
        self._limit = limit
        self._taken = taken
        self._option = option
        self._held: Counter[Hashable] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, client: Hashable) -> None:
        """Take a place; return it with `give_back`.

        Args:
            client: Identifies the client; None for all clients that cannot be told apart.

        Raises:
            LimitReached: All places are taken, or the client has its share.
        """
        if self._count >= self._limit:
            raise LimitReached(
                f"{self._taken}, which is the limit (`{self._option}`); try again later"
            )
        held = self._held[client]
        share = max(1, (self._limit - self._count + held) // 2)
        if held >= share:
            raise LimitReached(
                f"this client has {held} of {self._limit} places (`{self._option}`), which is its "
                "share; try again later"
            )
        self._held[client] = held + 1
        self._count += 1

    def give_back(self, client: Hashable) -> None:
        """Return a place.

        Args:
            client: The client that took it.
        """
        self._count -= 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
