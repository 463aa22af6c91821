"""How an HTTP client authorizes its requests; `http_server.gate` is the server's counterpart.

A transport knows neither tokens nor logins. It asks an authorizer for the headers of each request and
reports each refusal; the authorizer decides whether to try again.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from mcpearl.net.http_client.exchange import Header

_UNAUTHORIZED = (401, 403)
T = TypeVar("T")


class Refusal(NamedTuple):
    """One request that the server refused."""

    status: int
    headers: Mapping[str, str]
    """Of the answer, by lower-case name."""
    sent: Sequence[Header]
    """The headers that the authorizer supplied for the request."""
    attempt: int
    """How often this request has been refused so far."""


class Authorizer(Protocol):
    """Holds the credentials for one server."""

    def headers(self, method: str, url: str) -> list[Header] | Awaitable[list[Header]]:
        """Return the headers that authorize a request; empty without credentials."""
        ...

    async def refused(self, refusal: Refusal) -> bool:
        """Handle a refusal; return whether to try again. Raises `AuthorizationFailed` to give up."""
        ...

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Note how a request was answered: servers renew nonces in the headers."""
        ...


class Answered(Protocol):
    """A request that was answered: an HTTP exchange, or the handshake of a WebSocket."""

    status: int
    headers: dict[str, str]
    """Of the answer, by lower-case name."""

    def release(self) -> None:
        """Release it, since another will be made."""
        ...


A = TypeVar("A", bound=Answered)


async def let_in(
    authorizer: Authorizer,
    method: str,
    url: str,
    ask: Callable[[list[Header]], Awaitable[A]],
    held: Callable[[bool], None],
) -> A:
    """Make a request, and repeat it each time the authorizer has new credentials for it.

    Args:
        authorizer: Supplies the headers, and handles refusals.
        method: The HTTP method.
        url: The address of the request.
        ask: Makes the request with the headers it is passed.
        held: Called when the request begins and stops waiting for authorization.
    """
    attempt = 0
    while True:
        shown = authorizer.headers(method, url)
        if not isinstance(shown, list):
            shown = await _holding(held, shown)
        answered = await ask(shown)
        authorizer.answered(answered.status, answered.headers)
        if answered.status not in _UNAUTHORIZED:
            return answered
        attempt += 1
        refusal = Refusal(answered.status, answered.headers, shown, attempt)
        try:
            again = await _holding(held, authorizer.refused(refusal))
        except BaseException:
            answered.release()
            raise
        if not again:
            return answered
        answered.release()


async def _holding(held: Callable[[bool], None], work: Awaitable[T]) -> T:
    """Wait for authorization; meanwhile the time limit of the request is suspended."""
    held(True)
    try:
        return await work
    finally:
        held(False)


def check_given(names: Iterable[str], authorizer: Authorizer | None) -> None:
    """Raise `ValueError` if given headers would contradict the authorizer."""
    if authorizer is not None and any(name.lower() == "authorization" for name in names):
        raise ValueError("pass either `auth` or an `Authorization` header, not both")
