"""The open connections of a server, and the cancelled handlers that have not ended yet."""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from mcpearl.runtime.names import Names
    from mcpearl.runtime.observers import Guarded
    from mcpearl.server.connection import ServerConnection
    from mcpearl.server.session import Session
    from mcpearl.server.solo_connection import SoloConnection

logger = logging.getLogger("mcpearl.server")
UNWINDING = 1.0  # seconds a handler has to end once it is cancelled


if TYPE_CHECKING:

    class HasSessions(Protocol):
        """An endpoint that has sessions under their ids."""

        def receiver_of(self, id: str) -> Any:
            """Return the server's side of a session; None for one that is not here."""
            ...
else:
    HasSessions = Any  # making a protocol takes time at each start


class Sessions:
    """The sessions of this process: those with an id are found at their endpoints.

    Args:
        roster: Has all connections.
    """

    __slots__ = ("_endpoints", "_roster")

    def __init__(self, roster: "Roster") -> None:
        self._roster = roster
        self._endpoints: WeakSet[HasSessions] = WeakSet()

    def add(self, endpoint: HasSessions) -> None:
        """Search this endpoint, too, while it exists."""
        self._endpoints.add(endpoint)

    def get(self, id: str) -> "Session | None":
        """Return a session by its id."""
        for endpoint in self._endpoints:
            receiver = endpoint.receiver_of(id)
            if receiver is not None:
                session: Session | None = receiver.session
                return session
        return None

    def values(self) -> "Iterator[Session]":
        """Iterate over all sessions, with those that have no id."""
        found = (connection.session for connection in self._roster)
        return (session for session in found if session is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self.values())


class Roster:
    """Connections enter when they are made and leave when they are lost."""

    __slots__ = ("_connections", "_names", "_unwinding", "observer", "sessions")

    def __init__(self, observer: "Guarded | None" = None) -> None:
        self.observer = observer
        self._connections: set[ServerConnection | SoloConnection] = set()
        self._unwinding: set[asyncio.Task[None]] = set()
        self._names: Names | None = None
        self.sessions = Sessions(self)

    def __iter__(self) -> "Iterator[ServerConnection | SoloConnection]":
        return iter(tuple(self._connections))

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def unwinding(self) -> int:
        """How many handlers were cancelled and have not ended yet."""
        return len(self._unwinding)

    @property
    def names(self) -> "Names":
        """What is found by name while its connection, or the task that holds it, exists."""
        if self._names is None:
            from mcpearl.runtime.names import Names  # the first session needs it, not the start

            self._names = Names()
            self._names.serve("session", self.sessions)
        return self._names

    def enter(self, connection: "ServerConnection | SoloConnection") -> None:
        """Add a connection."""
        self._connections.add(connection)
        if self.observer is not None:
            self.observer.connection_began(connection)

    def leave(
        self, connection: "ServerConnection | SoloConnection", reason: Exception | None
    ) -> None:
        """Remove a connection that is lost."""
        if connection in self._connections:
            self._connections.discard(connection)
            if self._names is not None:
                self._names.let_go(connection)
            if self.observer is not None:
                self.observer.connection_ended(connection, reason)

    def unwind(self, work: "asyncio.Task[None]") -> None:
        """Cancel a handler, and remember it until it has ended."""
        work.cancel()
        self._unwinding.add(work)
        work.add_done_callback(self._unwinding.discard)

    async def settle(self) -> None:
        """Wait for cancelled handlers, which may still use what the lifespan yielded."""
        ending = self._unwinding - {asyncio.current_task()}
        if ending:
            _, stuck = await asyncio.wait(ending, timeout=UNWINDING)
            if stuck:
                logger.warning("%d cancelled handlers have not ended", len(stuck))
