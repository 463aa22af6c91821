"""The bus: short messages from one process of a server to all the others.

Messages are invalidations ("this resource was updated"), never requests: receiving one twice does no
harm, and a process that may have missed some acts as if everything it holds had changed.
"""

import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from msgspec import Struct

logger = logging.getLogger("mcpearl.stores")

MAX_MESSAGE = 60_000
"""Most bytes of a message together with its topic, on every bus."""

Hear = Callable[[bytes], None]
Unsubscribe = Callable[[], None]


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


class _BusSubscription(Struct, frozen=True):
    hear: Hear
    missed: Callable[[], None] | None


class Topics:
    """The subscriptions of one process, for a bus to hand messages to."""

    def __init__(self) -> None:
        self._topics: dict[str, list[_BusSubscription]] = {}

    def subscribe(self, topic: str, hear: Hear, missed: Callable[[], None] | None) -> Unsubscribe:
        """Add a subscription; see `Bus.subscribe`."""
        subscription = _BusSubscription(hear, missed)
        self._topics.setdefault(topic, []).append(subscription)

        def unsubscribe() -> None:
            subscriptions = self._topics.get(topic, [])
            if subscription in subscriptions:
                subscriptions.remove(subscription)
            if not subscriptions:
                self._topics.pop(topic, None)

        return unsubscribe

    def deliver(self, topic: str, message: bytes) -> None:
        """Hand a message to the subscribers of its topic; one that fails does not stop the others."""
        for subscription in list(self._topics.get(topic, ())):
            try:
                subscription.hear(message)
            except Exception:
                logger.exception("a subscriber of %r failed", topic)

    def missed(self) -> None:
        """Tell every subscriber that messages may have been lost."""
        for topic, subscriptions in list(self._topics.items()):
            for subscription in list(subscriptions):
                if subscription.missed is not None:
                    try:
                        subscription.missed()
                    except Exception:
                        logger.exception("a subscriber of %r failed", topic)


def check_message(topic: str, message: bytes) -> None:
    """Raise `ValueError` for a message that is too large for a bus."""
    size = len(topic.encode()) + len(message)
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes is over the {MAX_MESSAGE} a bus carries")
