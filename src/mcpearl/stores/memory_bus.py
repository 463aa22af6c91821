"""The bus of a server that is a single process; several servers of the process can share it."""

import asyncio
from collections.abc import Callable

from mcpearl.stores.topics import Hear, Topics, Unsubscribe, check_message


class MemoryBus:
    """A `Bus` within this process. Alone, it delivers nothing: there is no other process.

    >>> first = MemoryBus()
    >>> second = first.join()  # receives what the first publishes, and vice versa
    """

    def __init__(self) -> None:
        self._members: list[MemoryBus] = [self]  # shared by all that joined
        self._topics = Topics()
        self._is_open = False

    def join(self) -> "MemoryBus":
        """Return another member of the same bus."""
        member = MemoryBus()
        self._members.append(member)
        member._members = self._members
        return member

    def publish(self, topic: str, message: bytes) -> None:
        """Deliver a message to the other members at once."""
        check_message(topic, message)
        if self._is_open:
            for member in self._members:
                if member is not self and member._is_open:
                    member._topics.deliver(topic, message)

    def subscribe(
        self, topic: str, hear: Hear, missed: Callable[[], None] | None = None
    ) -> Unsubscribe:
        """Subscribe to a topic. No message is ever lost here."""
        return self._topics.subscribe(topic, hear, missed)

    async def start(self) -> None:
        """Start receiving and publishing."""
        self._is_open = True

    async def ended(self) -> None:
        """Wait forever: nothing here can fail."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Stop receiving and publishing."""
        self._is_open = False
