"""How requests are authorized: what an HTTP client asks of whoever holds the tokens.

A transport knows neither tokens nor logins. It asks an authorizer for the headers of each request,
and tells it when the server refuses one; the authorizer then says whether to try again. The other
side of `http_gate`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple, Protocol

from mcpearl.transports.http_connection import Header

UNAUTHORIZED = (401, 403)


class Refusal(NamedTuple):
    """One request that the server did not let in."""

    status: int
    headers: Mapping[str, str]
    """Of the answer, by name in lower case."""
    sent: Sequence[Header]
    """What the authorizer had given for the request."""
    attempt: int
    """How often this very request has been refused by now."""


class Authorizer(Protocol):
    """Holds what it takes to be let in by one server."""

    def headers(self, method: str, url: str) -> list[Header] | Awaitable[list[Header]]:
        """Give the headers that authorize a request; none when nothing is held yet."""
        ...

    async def refused(self, refusal: Refusal) -> bool:
        """Deal with a refusal: whether to try again. Raises `AuthorizationFailed` to give up."""
        ...

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """See how a request was answered: servers renew nonces with the headers."""
        ...
