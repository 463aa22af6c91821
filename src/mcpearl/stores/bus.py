"""The bus: short messages from one process of a server to all the others.

Messages are invalidations ("this resource was updated"), never requests: receiving one twice does no
harm, and a process that may have missed some acts as if everything it holds had changed.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from mcpearl.stores.topics import Hear, Unsubscribe


class Bus(Protocol):
    """One process's access to the bus."""

    def publish(self, topic: str, message: bytes) -> None:
        """Send a message to the subscribers of all other processes. Never waits.

        The publisher's own subscribers do not hear it. Messages of one publisher arrive in order.

        Raises:
            ValueError: Topic and message together are over `MAX_MESSAGE` bytes.
        """
        ...

    def subscribe(
        self, topic: str, hear: Hear, missed: Callable[[], None] | None = None
    ) -> Unsubscribe:
        """Call a function with every message of a topic, on the event loop that `start` ran on.

        Args:
            topic: Any text without line breaks.
            hear: Called with each message from another process.
            missed: Called when messages may have been lost, before the next one is handed over.

        Returns:
            A function that ends the subscription.
        """
        ...

    async def start(self) -> None:
        """Join the bus. From now on messages are received and can be published."""
        ...

    async def ended(self) -> None:
        """Wait until the bus fails, and raise the error. It can then be closed and started again."""
        ...

    async def close(self) -> None:
        """Leave the bus. Messages published afterwards are dropped."""
        ...


class Stored(Struct, frozen=True):
    """A message that a bus has stored."""

    message: bytes
    position: str
    """Its place among all messages. Positions compare as strings, in the order of the messages."""
    own: bool
    """Whether this process published it."""


@runtime_checkable
class StoringBus(Bus, Protocol):
    """A bus that keeps its messages for a while, so that a process can catch up on missed ones."""

    def follow(
        self, topic: str, hear: Callable[[Stored], None], missed: Callable[[], None]
    ) -> Unsubscribe:
        """Call a function with every stored message of a topic, this process's own included."""
        ...

    async def since(self, time: float) -> "list[tuple[str, Stored]] | None":
        """Return the messages of followed topics published since a time, each with its topic.

        Of messages with the same topic and content, only the newest is returned.

        Args:
            time: In seconds since 1970, by the clock of the store.

        Returns:
            None if the bus no longer knows all messages since that time.

        Raises:
            StoreUnavailable: The store could not be asked.
        """
        ...
