"""What becomes of a request that is sent to an upstream, for code that needs to know."""

from mcpearl.types.base import RequestId


class SentRequest:
    """A request to an upstream: the id it has there, and whether it was answered."""

    __slots__ = ("answered", "id")

    def __init__(self) -> None:
        self.id: RequestId | None = None  # None until it is sent
        self.answered = False  # with a result or an error

    def began(self, id: RequestId) -> None:
        """Note that it is being sent.

        Args:
            id: The id under which the upstream knows it.
        """
        self.id = id
