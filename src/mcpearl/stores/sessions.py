"""Legacy HTTP sessions as records, so that a session can be rebuilt in another process.

A process that serves a session keeps the live object and asks the store only when it does not have
one. Requests in general do not write to the store: a record is written when the session begins, becomes
ready, changes its log level or its subscriptions, and when it ends.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from mcpearl.protocol.snapshot import EndSnapshot

Identity = tuple[str | None, str, str | None]
"""Issuer, subject and client of a principal: what stays the same from one token to the next."""


class SessionRecord(Struct, frozen=True, kw_only=True, gc=False):
    """All a process needs to continue a session. No token or scope is part of it."""

    id: str
    identity: Identity
    """Only requests of the same identity may use the session."""
    caller: str = ""
    """A name of the caller that began it, whose sessions are counted together. Empty if it is unknown."""
    state: EndSnapshot
    """What client and server agreed on."""
    uris: tuple[str, ...] = ()
    """The resources the session is subscribed to."""
    revision: int = 1
    """Increased by one with each `save`."""
    since: float = 0.0
    """When it was first saved, by the store's clock, if known. It need not hear of anything earlier."""


class Missed(Struct, frozen=True):
    """An announcement that may not have been made to a client."""

    topic: str
    message: bytes
    position: str
    """Its position on the bus, by which a repeated announcement is recognized."""


RecordChanged = Callable[[str, SessionRecord | None], None]
"""Called with the id of a session and its new record; None when it was ended."""


class SessionStore(Protocol):
    """Keeps session records. Every record has an expiry. Any method may raise `StoreUnavailable`."""

    @property
    def count(self) -> int:
        """Roughly how many sessions all processes have; 0 if the store does not count them."""
        ...

    def count_of(self, caller: str) -> int:
        """Roughly how many sessions one caller has at all processes; 0 if the store does not count them.

        Args:
            caller: The caller, as in `SessionRecord.caller`.
        """
        ...

    def new_id(self, record: SessionRecord) -> str:
        """Return an unguessable id of visible ASCII for a session that begins.

        Args:
            record: The session without its id. A store may seal facts that never change into the id.

        Raises:
            StoreUnavailable: No session can begin, since the store is known to be away.
        """
        ...

    def begin(self, id: str, caller: str, most: int) -> bool:
        """Count a session that begins; return False if only `admit` can tell whether there is room.

        Args:
            id: The id of the session.
            caller: The caller, as in `SessionRecord.caller`.
            most: How many sessions all processes may have. A caller may have as many as are then free.
        """
        ...

    async def admit(self, id: str, caller: str, most: int) -> bool:
        """Count a session that begins, unless there is no room; the arguments are those of `begin`.

        Afterwards `count` and `count_of` are those by which it was decided.
        """
        ...

    def is_in_id(self, record: SessionRecord) -> bool:
        """Whether the id of a new session contains its whole record, so that `save` may be left out.

        Args:
            record: The record that was passed to `new_id`.
        """
        ...

    async def load(self, id: str) -> SessionRecord | None:
        """Return the record of a session, or None when it is unknown, expired or deleted.

        A session is loaded because it is used. If processes that load it may end before they `touch` it,
        the store has to extend its expiry here.
        """
        ...

    async def save(self, record: SessionRecord, ttl: float) -> bool:
        """Write a record; when this returns True, every process can load it.

        Args:
            record: The new record. Its revision must follow the one that is stored; 1 for a session
                that is not stored yet.
            ttl: Seconds until the record expires.

        Returns:
            False, with nothing written, when the stored revision is not the one before: another
            process was first, or the session has ended.
        """
        ...

    async def missed(self, record: SessionRecord) -> Sequence[Missed] | None:
        """Return what was announced since a record was first saved, for a process that just loaded it.

        None if that is not known: anything may have changed. A store without a bus returns nothing.
        """
        ...

    async def touch(self, id: str, ttl: float) -> bool:
        """Make a record expire `ttl` seconds from now; False when there is none."""
        ...

    async def delete(self, id: str) -> None:
        """Remove a record; an unknown id is ignored."""
        ...

    def watch(self, hear: RecordChanged, missed: Callable[[], None]) -> Callable[[], None]:
        """Call a function, on the event loop, soon after others changed or ended a session.

        Args:
            hear: Called with each change.
            missed: Called when changes may not have been heard of.

        Returns:
            A function that ends the watch.
        """
        ...
