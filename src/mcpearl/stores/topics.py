"""What every bus does with topics: it keeps subscriptions, and hands messages to them."""

import logging
from collections.abc import Callable

logger = logging.getLogger("mcpearl.stores")

MAX_MESSAGE = 60_000
"""Most bytes of a message together with its topic, on every bus."""

Hear = Callable[[bytes], None]
Unsubscribe = Callable[[], None]


class _BusSubscription:
    __slots__ = ("hear", "missed")

    def __init__(self, hear: Hear, missed: Callable[[], None] | None) -> None:
        self.hear = hear
        self.missed = missed


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
