"""Taking turns: a peer that sends much is taken a little at a time while others send too.

The loop hands over whatever it could read of one peer before it looks at the next, and that can be
thousands of messages. Who is alone is taken in ever larger pieces; when another has spoken in between,
in small ones, and only when nobody else had anything to say since, or had it often enough.
"""

from typing import Any

AT_ONCE = 4096  # bytes that are taken as they come
SMALLEST = 256  # bytes of a turn: a message or two, as much as others get
PATIENCE = 16  # times those with a message or two go first
LARGEST = 128 * 1024  # bytes: a thousand messages, which is how long somebody new may have to wait


class Fairness:
    """Who spoke last, of those who share a loop, and how often those did who never say much."""

    __slots__ = ("speaker", "spoken")

    def __init__(self) -> None:
        self.speaker: Any = None
        self.spoken = 0


class Backlog:
    """What was read of one peer and has not had its turn."""

    __slots__ = ("_data", "_heard", "_passed", "_share", "_taken")

    def __init__(self) -> None:
        self._data = b""
        self._taken = 0  # bytes of it that had their turn
        self._share = SMALLEST  # bytes for one turn
        self._heard = 0  # how often others had spoken when it last could have had a turn
        self._passed = 0  # how often it let others go first since it had one

    def __bool__(self) -> bool:
        return bool(self._data)

    def put(self, data: bytes) -> None:
        """Add what was read."""
        self._data = self._data[self._taken :] + data if self._data else data
        self._taken = 0

    def begin(self, turns: Fairness, speaker: Any) -> bool:
        """Settle how much this turn is worth; False to let others go first."""
        heard, self._heard = self._heard, turns.spoken
        if heard != turns.spoken and self._passed < PATIENCE:
            self._passed += 1
            return False
        self._passed = 0
        alone = turns.speaker is speaker
        turns.speaker = speaker
        self._share = min(2 * self._share, LARGEST) if alone else SMALLEST
        return True

    def take(self) -> bytes:
        """Give the next piece."""
        start = self._taken
        self._taken = end = start + self._share
        piece = self._data[start:end]
        if end >= len(self._data):
            self._data = b""
            self._taken = 0
        return piece
