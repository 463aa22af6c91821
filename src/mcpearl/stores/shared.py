"""A store for the whole of a deployment: all processes of a server, on however many machines.

It has every kind of store, a bus between the processes, and keys that all of them have. What the others
promise each on their own it promises together.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from mcpearl.runtime.names import Directory
    from mcpearl.stores.bus import Bus, Hear, Unsubscribe
    from mcpearl.stores.events import EventStore
    from mcpearl.stores.proofs import ProofStore
    from mcpearl.stores.rates import RateStore
    from mcpearl.stores.sessions import SessionStore
    from mcpearl.stores.state import StateStore
    from mcpearl.stores.tasks import TaskStore

REQUEST_BITS = 24
"""Bits of the id of a request to a client below the number of the process that sent it."""
REQUEST_BLOCK = 1 << 12
"""Ids between the beginnings of two sessions. A session that a process drops and builds again begins
elsewhere, so that it does not use its own ids twice."""
REQUEST_BLOCKS = 1 << 11
"""Beginnings that are used in turn; the upper half of the ids is left to sessions that ask a lot."""


class ProcessRelay(Protocol):
    """A way to the other processes that loses nothing it accepted."""

    @property
    def number(self) -> int:
        """The number of this process, which no other has or will have; of 28 bits."""
        ...

    async def pass_to(self, number: int, topic: str, message: bytes) -> None:
        """Send a message to one process; when this returns, it will reach it, if it lives.

        Raises:
            StoreUnavailable: It could not be stored.
        """
        ...

    async def spread(self, topic: str, message: bytes) -> None:
        """Send a message to all other processes; when this returns, it will reach them.

        Raises:
            StoreUnavailable: It could not be stored.
        """
        ...

    def receive(self, topic: str, hear: "Hear") -> "Unsubscribe":
        """Have messages handed over, on the event loop, that were sent to this process or to all."""
        ...

    def beside(self, topic: str, hear: "Hear") -> "list[Hear]":
        """Return the other receivers of a topic in this process: those of its other endpoints."""
        ...


@runtime_checkable
class SharedStore(Protocol):
    """All that the processes of a deployment share."""

    @property
    def tasks(self) -> "TaskStore":
        """The tasks of all processes."""
        ...

    @property
    def sessions(self) -> "SessionStore":
        """The sessions that any process serves."""
        ...

    @property
    def events(self) -> "EventStore":
        """The streams that any process resumes."""
        ...

    @property
    def bus(self) -> "Bus":
        """The bus between all processes."""
        ...

    @property
    def relay(self) -> ProcessRelay:
        """The way to single processes."""
        ...

    @property
    def proofs(self) -> "ProofStore":
        """The DPoP proofs that any process has seen."""
        ...

    @property
    def rates(self) -> "RateStore":
        """What callers have used of their rates at any process."""
        ...

    @property
    def state(self) -> "StateStore":
        """What handlers keep for sessions and principals."""
        ...

    @property
    def names(self) -> "Directory":
        """The names that any process holds."""
        ...

    async def start(self, keys: list[bytes] | None) -> list[bytes]:
        """Join the deployment as a new process; return the keys that all of its processes have.

        Args:
            keys: Keys that were given to every process; None to agree on some.

        Raises:
            StoreUnavailable: The store cannot be used; or there are no keys, and it cannot be reached.
        """
        ...

    async def agree(self) -> list[bytes]:
        """Return the keys of the deployment without joining it.

        Raises:
            StoreUnavailable: The store cannot be reached or used.
        """
        ...

    def parts(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Return what has to run while the process is part of the deployment, by name."""
        ...

    async def close(self) -> None:
        """Leave the deployment."""
        ...
