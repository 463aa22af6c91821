"""Session records in memory, for endpoints of one process that share their sessions.

An endpoint that does not share its sessions needs no store: a session it does not know does not exist.
"""

from collections.abc import Callable, Sequence

from mcpearl.runtime import clock
from mcpearl.stores.sessions import Missed, RecordChanged, SessionRecord

_SWEEP_EVERY = 60.0  # seconds after which a write removes expired records


class MemorySessionStore:
    """A `SessionStore` that ends with the process."""

    def __init__(self) -> None:
        self._records: dict[str, tuple[SessionRecord, float]] = {}  # with the time each expires
        self._swept = clock.monotonic()
        self._hearers: list[RecordChanged] = []

    def __len__(self) -> int:
        return len(self._records)

    count = 0  # every endpoint counts its own sessions

    def count_of(self, caller: str) -> int:
        """Return 0: every endpoint counts its own sessions."""
        return 0

    def new_id(self, record: SessionRecord) -> str:
        """Return 32 random characters."""
        return clock.token(24)

    def begin(self, id: str, caller: str, most: int) -> bool:
        """Return True: every endpoint counts its own sessions."""
        return True

    async def admit(self, id: str, caller: str, most: int) -> bool:
        """Return True: every endpoint counts its own sessions."""
        return True

    def is_in_id(self, record: SessionRecord) -> bool:
        """Return False: an id contains no facts."""
        return False

    async def load(self, id: str) -> SessionRecord | None:
        """Return a record that has not expired."""
        return self._find(id)

    def _find(self, id: str) -> SessionRecord | None:
        found = self._records.get(id)
        if found is None:
            return None
        record, expires = found
        if expires <= clock.monotonic():
            del self._records[id]
            return None
        return record

    async def save(self, record: SessionRecord, ttl: float) -> bool:
        """Write a record if its revision follows the stored one."""
        self._sweep()
        stored = self._find(record.id)
        if record.revision != (0 if stored is None else stored.revision) + 1:
            return False
        self._records[record.id] = record, clock.monotonic() + ttl
        self._tell(record.id, record)
        return True

    async def missed(self, record: SessionRecord) -> Sequence[Missed]:
        """Return nothing: announcements are not stored."""
        return ()

    async def touch(self, id: str, ttl: float) -> bool:
        """Move the expiry of a record."""
        record = self._find(id)
        if record is None:
            return False
        self._records[id] = record, clock.monotonic() + ttl
        return True

    async def delete(self, id: str) -> None:
        """Remove a record."""
        if self._records.pop(id, None) is not None:
            self._tell(id, None)

    def watch(self, hear: RecordChanged, missed: Callable[[], None]) -> Callable[[], None]:
        """Call a function for every change; none is ever missed here."""
        self._hearers.append(hear)
        return lambda: self._hearers.remove(hear)

    def _tell(self, id: str, record: SessionRecord | None) -> None:
        for hear in list(self._hearers):
            hear(id, record)

    def _sweep(self) -> None:
        now = clock.monotonic()
        if now - self._swept >= _SWEEP_EVERY:
            self._swept = now
            self._records = {id: kept for id, kept in self._records.items() if kept[1] > now}
