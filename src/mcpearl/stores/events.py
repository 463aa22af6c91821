"""Events of resumable streams: written before they are sent, kept for readers that come back.

A stream belongs to a session and has a name in it. Its events are numbered from 1 without gaps, by the
store, since several processes may write to one stream. A process that sends a stream as a response
follows it: each event is handed to the follower once it is safe to send, whichever process appended it.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

StoredEvent = tuple[int, bytes]
"""The number and the message of one event."""


class EventsLost(Exception):
    """A stream cannot be resumed from a position: it is unknown, or later events are gone."""


class StoredEvents(NamedTuple):
    """What a store has of a stream after a position."""

    events: list[StoredEvent]
    last: int
    """The number of the newest event of the stream; 0 before the first."""
    ended: bool


class Follower(Protocol):
    """Receives the events of one stream, in order, on the event loop."""

    def heard(self, number: int, message: bytes) -> None:
        """Take an event that may be sent from now on."""
        ...

    def over(self) -> None:
        """Note that the stream has ended; nothing follows."""
        ...


class EventStore(Protocol):
    """Keeps the events of streams within its own limits. Dropped events cannot be sent again."""

    durable: bool
    """Whether streams outlive the process, and other processes can resume them."""

    def begin(self, session: str, stream: str, last_words: Sequence[bytes]) -> None:
        """Begin a stream that only this process appends to. Never waits.

        Args:
            session: The id of the session.
            stream: The name of the stream.
            last_words: Events that end the stream if this process dies before it has ended it.
        """
        ...

    def append(self, session: str, stream: str, message: bytes) -> None:
        """Add an event to a stream. Never waits.

        The first event begins the stream. Appending to a stream that has ended does nothing.
        """
        ...

    def announce(
        self, session: str, stream: str, message: bytes, position: str | None = None
    ) -> None:
        """Append an announcement once, though every process that has the session makes it. Never waits.

        Args:
            session: The id of the session.
            stream: The name of the stream.
            message: The announcement.
            position: Its position on a bus that stores messages. If the stream has this announcement, or
                a newer one with the same text, nothing is appended. Without a position, the
                announcement is always appended.
        """
        ...

    def leave(self, session: str, stream: str) -> None:
        """Drop waiting announcements, since this process no longer has the session."""
        ...

    def end(self, session: str, stream: str) -> None:
        """End a stream after everything that was appended so far. Never waits."""
        ...

    async def stored(self, session: str, stream: str) -> None:
        """Wait until everything appended so far is as safe as this store makes it.

        Raises:
            StoreUnavailable: Some of it could not be written.
        """
        ...

    def follow(self, session: str, stream: str, follower: Follower) -> None:
        """Hand every event that is appended from now on to a follower, once it may be sent."""
        ...

    def unfollow(self, session: str, stream: str, follower: Follower) -> None:
        """Stop handing events to a follower."""
        ...

    def stop_reading(self, session: str, stream: str) -> None:
        """Note that no response of this process reads the stream at the moment. Never waits."""
        ...

    def mark_read(self, session: str, stream: str, number: int) -> None:
        """Note that a reader took everything up to a number. Never waits.

        A store may keep fewer of the events that were read, and may drop a stream that ended and was
        read to its end.
        """
        ...

    async def after(self, session: str, stream: str, number: int | None) -> StoredEvents:
        """Return the events after a position.

        Args:
            session: The id of the session.
            stream: The name of the stream.
            number: The last event the reader has; None for a reader without a position, which gets
                the events that are still kept and that no reader has taken.

        Raises:
            EventsLost: Events after this position are gone, or the stream has no such event.
        """
        ...

    def forget(self, session: str) -> None:
        """Drop all streams of a session. Followers hear nothing more."""
        ...

    async def close(self) -> None:
        """Release what the store holds for this process."""
        ...
