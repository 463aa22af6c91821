"""Which requests come from the same caller: those of one principal, or else of one address."""

from collections.abc import Hashable
from typing import Any

from mcpearl.net.http_server.request import RequestInfo
from mcpearl.net.ports import host_key
from mcpearl.runtime.budget import Account, Budget


class Callers:
    """The callers of an endpoint, as its budget knows them.

    Args:
        budget: Counts what is held for each.
        anonymous: The principal of callers that are told apart by their address only.
    """

    __slots__ = ("_anonymous", "_budget")

    def __init__(self, budget: Budget, anonymous: Any) -> None:
        self._budget = budget
        self._anonymous = anonymous

    def key_of(self, principal: Any, request: RequestInfo) -> Hashable:
        """Return a key for the caller of a request; None if it cannot be told from others."""
        if principal is not None and principal is not self._anonymous:
            key: Hashable = principal
            return key
        address = request.peer.address
        return None if address is None else host_key(address[0])

    def account_of(self, principal: Any, request: RequestInfo) -> Account:
        """Return the account of the caller of a request."""
        return self._budget.account(self.key_of(principal, request))
