"""What becomes of a request that is sent to an upstream, for code that needs to know."""

from mcpearl.protocol.pending import PendingRequest
from mcpearl.types.base import RequestId


class SentRequest:
    """A request to an upstream: the id it has there, and whether it was answered."""

    __slots__ = ("answered", "id")

    def __init__(self) -> None:
        self.id: RequestId | None = None  # None until it is sent
        self.answered = False  # with a result or an error

    def began(self, request: PendingRequest) -> None:
        """Note that it is being sent.

        Args:
            request: The request that waits for the upstream.
        """
        self.id = request.id
