"""Sessions in the order of their use, in one table for each stage.

The session that was idle longest is in front of its table, so that sweeping and making room look at only
one session more than they end.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from mcpearl.transports.http_server.sessions import Stage, TransportSession

_LOOKS = 16  # sessions looked at to find an idle one; busy ones go to the end
S = TypeVar("S", bound=TransportSession)


class SessionOrder(Generic[S]):
    """The sessions of one endpoint by stage, each stage in the order of use.

    Args:
        opening_time: Seconds a session may be idle until its client is ready.
        idle_time: The same from then on.
    """

    __slots__ = ("_patience", "_tables", "opening", "unused", "used")

    def __init__(self, opening_time: float, idle_time: float) -> None:
        self.opening: OrderedDict[str, S] = OrderedDict()
        self.unused: OrderedDict[str, S] = OrderedDict()
        self.used: OrderedDict[str, S] = OrderedDict()
        self._tables = (self.opening, self.unused, self.used)  # by stage
        self._patience = (opening_time, idle_time, idle_time)  # by stage

    def __len__(self) -> int:
        return len(self.opening) + len(self.unused) + len(self.used)

    def __iter__(self) -> Iterator[S]:
        for table in self._tables:
            yield from table.values()

    def add(self, session: S) -> None:
        """Put a session at the end of the table of its stage."""
        self._tables[session.stage][session.id] = session

    def remove(self, session: S) -> bool:
        """Remove a session; return False if it is not here, or another object has its id by now."""
        for table in self._tables:
            if table.get(session.id) is session:
                del table[session.id]
                return True
        return False

    def advance(self, session: S) -> None:
        """Move a session that is not in use yet to the stage it has reached."""
        del self._tables[session.stage][session.id]
        if session.stage is Stage.UNUSED:
            session.stage = Stage.USED
        elif session.receiver.is_ready:
            session.stage = Stage.UNUSED
        self.add(session)

    def sweep(self, now: float, expire: Callable[[S], None]) -> None:
        """Expire the sessions that were idle for too long."""
        for table, patience in zip(self._tables, self._patience, strict=True):
            while table:
                id, session = next(iter(table.items()))
                if now - session.used <= patience:
                    break  # the others are younger
                if session.open:
                    session.used = now  # a session that is being answered is in use
                    table.move_to_end(id)
                else:
                    expire(session)

    def longest_idle(self, *, with_used: bool) -> S | None:
        """Return the session that was idle longest, of those found near the front of the tables.

        Args:
            with_used: Whether it may be one that its client has used.
        """
        tables = self._tables if with_used else self._tables[: Stage.USED]
        fronts = [self._idle_front(table) for table in tables]
        idle = [session for session in fronts if session is not None]
        return min(idle, key=lambda session: session.used) if idle else None

    @staticmethod
    def _idle_front(table: OrderedDict[str, S]) -> S | None:
        for _ in range(min(len(table), _LOOKS)):
            id, session = next(iter(table.items()))
            if not session.open:
                return session
            table.move_to_end(id)
        return None

    def used_since(self, time: float) -> list[S]:
        """Return the sessions in use that had a request after a time, or have one now."""
        return [each for each in self.used.values() if each.open or each.used > time]
