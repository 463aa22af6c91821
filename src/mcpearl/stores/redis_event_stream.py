"""One stream of events in this process: what is still to be written, and what its followers have."""

import asyncio
import logging
from collections.abc import Sequence

from mcpearl.stores.events import Follower

logger = logging.getLogger("mcpearl.stores")


class LocalStream:
    """What this process does with one stream: it writes to it, follows it, or both."""

    __slots__ = (
        "begun",
        "end_written",
        "ending",
        "followers",
        "heard",
        "last_words",
        "look_again",
        "looking",
        "name",
        "over",
        "producer",
        "read",
        "reads",
        "sequence",
        "session",
        "unwritten",
        "writer",
        "writing",
    )

    def __init__(self, session: str, name: str, writer: str) -> None:
        self.session = session
        self.name = name
        self.writer = writer  # names this process's sequence of events
        self.followers: tuple[Follower, ...] = ()
        self.heard: int | None = None  # the newest event that the followers have
        self.unwritten: list[bytes] = []
        self.sequence = 0  # the number of this process's events that are written
        self.ending = False  # nothing more may be appended
        self.end_written = False
        self.over = False
        self.writing: asyncio.Task[None] | None = None
        self.looking: asyncio.Task[None] | None = None  # for events of other processes
        self.look_again = False  # it has grown since the store was asked
        self.last_words: Sequence[bytes] | None = None
        self.begun = False  # the last words are stored
        self.producer = 0  # another process that produces it
        self.read = 0
        self.reads = False  # other processes tell this one when they append

    @property
    def is_busy(self) -> bool:
        """Whether this process follows the stream, or has something to write to it."""
        return bool(self.followers or self.unwritten or self.writing is not None)

    @property
    def has_unwritten(self) -> bool:
        """Whether events, or the end, are not stored yet."""
        return bool(self.unwritten) or (self.ending and not self.end_written)

    def hand_over(self, number: int, message: bytes) -> None:
        """Hand a stored event to the followers, unless they have it."""
        if self.heard is None or number > self.heard:
            self.heard = number
            for follower in self.followers:
                try:
                    follower.heard(number, message)
                except Exception:
                    logger.exception("a reader of a stream failed; the others get its events")

    def hand_over_written(self, messages: Sequence[bytes], before: int, last: int) -> bool:
        """Hand events that were written together to the followers; False if others came between.

        Args:
            messages: The events.
            before: The newest event before them.
            last: The newest now.
        """
        if not self.followers:
            self.heard = last
            return True
        is_next = self.heard is None or self.heard == before
        if not is_next or last != before + len(messages):
            return False
        for number, message in enumerate(messages, before + 1):
            self.hand_over(number, message)
        return True

    def end(self) -> None:
        """Tell the followers that the stream has ended; a look in progress does this when it is done."""
        self.ending = True
        if self.looking is not None or self.over:
            return  # the look finds the end
        self.over = True
        for follower in self.followers:
            follower.over()

    def ended_elsewhere(self) -> None:
        """Drop what was to be written: another process ended the stream."""
        self.unwritten.clear()
        self.end_written = True
        self.end()

    def lost_events(self) -> None:
        """Start over with what the store has: it lost newer events, as may happen in a failover."""
        logger.warning("the store lost events of a stream; its reader goes on with what comes")
        self.heard = self.read = 0
