"""Counts the large messages of one connection while they are being worked on.

A message of more than a few kilobytes is weighed before it is decoded. The decoded objects live until
its calls have ended. No event reports that, so the calls are checked when room is needed.
"""

from mcpearl.protocol.end import End
from mcpearl.protocol.events import Call, Event, Many
from mcpearl.protocol.weight import weight_of
from mcpearl.runtime.budget import Account, NoRoom


class LargeCalls:
    """The large calls of one end.

    Args:
        account: The peer's.
        end: Knows which calls are still open.
    """

    __slots__ = ("_calls", "_end", "_holding", "_kept")

    def __init__(self, account: Account, end: End) -> None:
        self._end = end
        self._holding = account.open("calls")
        self._calls: list[tuple[list[Call], int]] = []  # of a message each, with its weight
        self._kept = 0  # messages that were still needed at the last check

    def __bool__(self) -> bool:
        return bool(self._calls)

    def admit(self, message: bytes) -> int:
        """Count a message that is about to be decoded, and return its weight. Raises `NoRoom`."""
        weight = weight_of(message)
        if len(self._calls) > 2 * self._kept:
            self.look()
        try:
            self._holding.grow(self._holding.size + weight)
        except NoRoom:
            self.look()
            self._holding.grow(self._holding.size + weight)
        return weight

    def keep(self, event: Event, weight: int) -> None:
        """Count what a message became for as long as its calls are open."""
        calls = [each for each in _events(event) if isinstance(each, Call)]
        if calls:
            self._calls.append((calls, weight))
        else:
            self.look()

    def look(self) -> None:
        """Stop counting the messages whose calls have ended."""
        is_open = self._end.is_open
        self._calls = [each for each in self._calls if any(map(is_open, each[0]))]
        self._kept = len(self._calls)
        self._holding.resize(sum(weight for _, weight in self._calls))

    def close(self) -> None:
        """Stop counting: the peer is gone."""
        self._calls.clear()
        self._holding.release()


def _events(event: Event) -> "list[Event]":
    return event.events if isinstance(event, Many) else [event]
