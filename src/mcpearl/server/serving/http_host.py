"""The server as an HTTP endpoint sees it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mcpearl.auth.principal import ANONYMOUS, Principal
from mcpearl.protocol.events import Call
from mcpearl.runtime.budget import Account
from mcpearl.runtime.observer import Bound, Counters
from mcpearl.server.connection import ServerConnection
from mcpearl.server.solo_connection import SoloConnection
from mcpearl.transports.mirrored_headers import ParameterPath
from mcpearl.transports.transport import Transport

if TYPE_CHECKING:
    from mcpearl.server.server import Server

_NO_SCOPES: frozenset[str] = frozenset()


class HttpHost:
    """What an endpoint asks of a server."""

    anonymous = ANONYMOUS  # any client can reach an HTTP port: without a gate it has no scopes

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._core = server.core
        self.limits = server.core.limits
        self.budget = server.core.budget

    def mirrored(self) -> Mapping[str, Mapping[ParameterPath, str]]:
        """Return the parameters that tools of the current dispatcher mirror into headers, by tool."""
        return self._core.mirrored

    def converse(
        self, transport: Transport, principal: Principal | None, account: Account | None = None
    ) -> ServerConnection:
        """Make the server's side of one client, with its account."""
        return ServerConnection(
            self._server.core, transport, principal or self.anonymous, account, renewable=False
        )

    def converse_alone(self) -> SoloConnection:
        """Make the server's side of clients that have no session."""
        return SoloConnection(self._server.core)

    def missing_scopes(self, call: Call, principal: Principal) -> frozenset[str]:
        """Return the scopes a call needs, if its principal does not have them all."""
        dispatcher = self._server.core.dispatcher
        if not dispatcher.scoped:
            return _NO_SCOPES
        name = getattr(call.params, "name", None) or getattr(call.params, "uri", None)
        if not isinstance(name, str):
            return _NO_SCOPES
        needed = dispatcher.scopes_of(call.method, name)
        return _NO_SCOPES if needed <= principal.scopes else needed

    def bounded(self, bound: Bound, detail: str) -> None:
        """Tell the server's observer that a limit was reached."""
        self._server.core.bounded(bound, detail)

    def add_counters(self, source: Counters) -> Callable[[], None]:
        """Include the endpoint's counters in those of the server."""
        return self._server.core.add_counters(source)

    def time_left(self, principal: Principal) -> float | None:
        """Return for how many seconds a principal is valid; None if it does not expire."""
        return principal.time_left
