"""What an endpoint needs from the server behind it: the seam between HTTP and what answers calls."""

from collections.abc import Callable
from typing import Any, Protocol

from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.events import Call
from mcpearl.protocol.limits import Limits
from mcpearl.runtime.budget import Account, Budget
from mcpearl.runtime.observer import Bound, Counters
from mcpearl.transports.http_server.header_check import Mirrored
from mcpearl.transports.http_server.post import CallRunner, PostOutlet, ServedClient


class SoloConversation(CallRunner, Protocol):
    """The server's side of all clients that have no session."""

    def receive_from(
        self, principal: Any, message: bytes | Envelope, outlet: PostOutlet
    ) -> list[Call]:
        """Take one message of this principal; return the calls to run."""
        ...

    def end_listeners(self) -> None:
        """End every subscription in an orderly way, with its result."""
        ...

    def lost(self, reason: Exception | None) -> None:
        """Release everything: the server ends."""
        ...


class EndpointHost(Protocol):
    """What an endpoint needs from the server."""

    limits: Limits
    budget: Budget
    """Counts what is held for the clients."""
    anonymous: Any
    """The principal of every request if the endpoint has no gate."""

    def mirrored(self) -> Mirrored:
        """Return the parameters that tools mirror into headers, as they are at the moment."""
        ...

    def converse(
        self, transport: Any, principal: Any, account: Account | None = None
    ) -> ServedClient:
        """Make the server's side of one client, with its account if it shares one."""
        ...

    def converse_alone(self) -> SoloConversation:
        """Make the server's side of clients that have no session."""
        ...

    def missing_scopes(self, call: Call, principal: Any) -> frozenset[str]:
        """Return the scopes a call needs, if its principal does not have them all."""
        ...

    def bounded(self, bound: Bound, detail: str) -> None:
        """Note that a limit was reached."""
        ...

    def add_counters(self, source: Counters) -> Callable[[], None]:
        """Add the endpoint's counters to the server's; return a function that removes them."""
        ...

    def time_left(self, principal: Any) -> float | None:
        """Return for how many seconds a principal is valid; None if it does not expire."""
        ...
