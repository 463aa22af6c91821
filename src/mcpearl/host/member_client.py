"""The client of one server of a host: its requests pass the circuit breaker of the server."""

from mcpearl.client.client import Client
from mcpearl.runtime.breaker import Breaker


class MemberClient(Client):
    """A client whose server is left alone for a while after enough requests have failed."""

    def guard(self, breaker: Breaker | None) -> None:
        """Have requests pass a breaker from now on.

        Args:
            breaker: The breaker; None for none.
        """
        self._requests.breaker = breaker
