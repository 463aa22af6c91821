"""Fairness between the clients of an event loop: large input is handled a little at a time, in turns.

The loop hands over whatever it could read from one client before it looks at the next, and that can be
thousands of messages. While others send, a flooding client gets 256 bytes per turn, and yields up to 16
times before each turn. The share of a lone sender doubles with each turn, up to 128 KiB.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.runtime.congestion import Congestion

AT_ONCE = 4096  # a read of at most so many bytes is handled at once, without turns
SMALLEST = 256  # bytes of the smallest turn: a message or two
STEADY = 1024  # bytes of the largest turn that was waited for in a line
PATIENCE = 16  # times that a client with a backlog yields before its next turn
LARGEST = 128 * 1024  # bytes of the largest turn: a new client may wait for a thousand messages


class Fairness:
    """State shared by the clients of one loop: the last to have a turn, and a count of small reads."""

    __slots__ = ("congestion", "speaker", "spoken")

    def __init__(self) -> None:
        self.speaker: Any = None
        self.spoken = 0
        self.congestion: Congestion | None = None
        """The lines in which input waits under load; None unless the server sheds load."""


class Backlog:
    """Bytes read from one client that have not had their turn."""

    __slots__ = ("_data", "_heard", "_passed", "_share", "_taken")

    def __init__(self) -> None:
        self._data = b""
        self._taken = 0  # bytes of `_data` that had their turn
        self._share = SMALLEST  # bytes for one turn
        self._heard = 0  # `spoken` when the last turn could have begun
        self._passed = 0  # how often the client yielded since its last turn

    def __bool__(self) -> bool:
        return bool(self._data)

    def put(self, data: bytes) -> None:
        """Add bytes that were read."""
        self._data = self._data[self._taken :] + data if self._data else data
        self._taken = 0

    def begin(self, turns: Fairness, speaker: Any) -> bool:
        """Begin a turn and settle its share; return False to let others go first."""
        heard, self._heard = self._heard, turns.spoken
        if heard != turns.spoken and self._passed < PATIENCE:
            self._passed += 1
            return False
        self._passed = 0
        alone = turns.speaker is speaker
        turns.speaker = speaker
        self._share = min(2 * self._share, LARGEST) if alone else SMALLEST
        return True

    def begin_in_line(self, turns: Fairness, speaker: Any) -> None:
        """Begin a turn that was waited for in a line."""
        self._share = min(2 * self._share, STEADY) if turns.speaker is speaker else SMALLEST
        turns.speaker = speaker

    def take(self) -> bytes:
        """Return the next piece."""
        start = self._taken
        self._taken = end = start + self._share
        piece = self._data[start:end]
        if end >= len(self._data):
            self._data = b""
            self._taken = 0
        return piece
