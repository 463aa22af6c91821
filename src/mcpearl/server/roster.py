"""The open connections of a server, and the cancelled handlers that have not ended yet."""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcpearl.runtime.names import Names

if TYPE_CHECKING:
    from mcpearl.runtime.observer import Guarded
    from mcpearl.server.connection import ServerConnection
    from mcpearl.server.solo_connection import SoloConnection

logger = logging.getLogger("mcpearl.server")
UNWINDING = 1.0  # seconds a handler has to end once it is cancelled


class Roster:
    """Connections enter when they are made and leave when they are lost."""

    __slots__ = ("_connections", "_unwinding", "names", "observer")

    def __init__(self, observer: "Guarded | None" = None) -> None:
        self.observer = observer
        self._connections: set[ServerConnection | SoloConnection] = set()
        self._unwinding: set[asyncio.Task[None]] = set()
        self.names = Names()
        """What is found by name while its connection, or the task that holds it, is there."""

    def __iter__(self) -> "Iterator[ServerConnection | SoloConnection]":
        return iter(tuple(self._connections))

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def unwinding(self) -> int:
        """How many handlers were cancelled and have not ended yet."""
        return len(self._unwinding)

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
            self.names.let_go(connection)
            if self.observer is not None:
                self.observer.connection_ended(connection, reason)

    def unwind(self, work: "asyncio.Task[None]") -> None:
        """Cancel a handler, and remember it until it has ended."""
        work.cancel()
        self._unwinding.add(work)
        work.add_done_callback(self._unwinding.discard)

    async def settle(self) -> None:
        """Wait for cancelled handlers, which still use what the lifespan gave them."""
        ending = self._unwinding - {asyncio.current_task()}
        if ending:
            _, stuck = await asyncio.wait(ending, timeout=UNWINDING)
            if stuck:
                logger.warning("%d cancelled handlers have not ended", len(stuck))
