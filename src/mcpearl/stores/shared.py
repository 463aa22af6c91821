"""A store for a whole deployment: all processes of a server, on any number of machines.

It contains every kind of store, a bus between the processes, and keys that all processes share. Each of
its parts keeps the promises of its own protocol.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from mcpearl.runtime.names import Directory
    from mcpearl.stores.bus import Bus
    from mcpearl.stores.events import EventStore
    from mcpearl.stores.proofs import ProofStore
    from mcpearl.stores.rates import RateStore
    from mcpearl.stores.sessions import SessionStore
    from mcpearl.stores.state import StateStore
    from mcpearl.stores.tasks import TaskStore
    from mcpearl.stores.topics import Hear, Unsubscribe

REQUEST_BITS = 24
"""How many low bits of the id of a request to a client count requests. The bits above are the number of
the process that sent it."""
REQUEST_BLOCK = 1 << 12
"""Distance between the first ids of two sessions. A session that a process drops and rebuilds starts at
another id, so that it does not use an id twice."""
REQUEST_BLOCKS = 1 << 11
"""Number of first ids, which are used in turn. The upper half of the ids is left to sessions that send
many requests."""


class ProcessRelay(Protocol):
    """Sends messages to other processes. A message that was accepted is not lost."""

    @property
    def number(self) -> int:
        """The number of this process (28 bits), which no other process has or will have."""
        ...

    async def pass_to(self, number: int, topic: str, message: bytes) -> None:
        """Send a message to one process; once this returns, it will arrive if the process is alive.

        Raises:
            StoreUnavailable: It could not be stored.
        """
        ...

    async def spread(self, topic: str, message: bytes) -> None:
        """Send a message to all other processes; once this returns, the message will reach them.

        Raises:
            StoreUnavailable: It could not be stored.
        """
        ...

    def receive(self, topic: str, hear: "Hear") -> "Unsubscribe":
        """Call a function, on the event loop, with messages sent to this process or to all."""
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
        """Messages to single processes."""
        ...

    @property
    def proofs(self) -> "ProofStore":
        """The DPoP proofs that any process has seen."""
        ...

    @property
    def rates(self) -> "RateStore":
        """How much of their rates callers have used, at all processes together."""
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
            keys: Keys that every process was configured with; None to agree on keys through the store.

        Raises:
            StoreUnavailable: The store cannot be used; or no keys are passed, and it cannot be reached.
        """
        ...

    async def agree(self) -> list[bytes]:
        """Return the keys of the deployment without joining it.

        Raises:
            StoreUnavailable: The store cannot be reached or used.
        """
        ...

    @property
    def is_up(self) -> bool:
        """Whether it can be reached, as far as is known without asking it."""
        ...

    def parts(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Return what has to run while the process is part of the deployment, by name."""
        ...

    async def close(self) -> None:
        """Leave the deployment."""
        ...
