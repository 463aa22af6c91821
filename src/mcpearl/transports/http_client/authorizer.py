"""How requests are authorized: what an HTTP client asks of whoever holds the tokens.

A transport knows neither tokens nor logins. It asks an authorizer for the headers of each request,
and tells it when the server refuses one; the authorizer then says whether to try again. The other
side of `http_gate`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from mcpearl.net.http_client.exchange import Header

_UNAUTHORIZED = (401, 403)
T = TypeVar("T")


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


class Answered(Protocol):
    """A request that was answered: an exchange over HTTP, or the handshake of a WebSocket."""

    status: int
    headers: dict[str, str]
    """Of the answer, by name in lower case."""

    def release(self) -> None:
        """Let go of it, since another will be made."""
        ...


A = TypeVar("A", bound=Answered)


async def let_in(
    authorizer: Authorizer,
    method: str,
    url: str,
    ask: Callable[[list[Header]], Awaitable[A]],
    held: Callable[[bool], None],
) -> A:
    """Make a request, as often as the authorizer has something new to show for it.

    `held` is told when the request has to wait here for authorization, and when no longer.
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
    """Wait for authorization; meanwhile the clock of the request stands still."""
    held(True)
    try:
        return await work
    finally:
        held(False)


def check_given(names: Iterable[str], authorizer: Authorizer | None) -> None:
    """Refuse headers of the program's own that would say something else than the authorizer."""
    if authorizer is not None and any(name.lower() == "authorization" for name in names):
        raise ValueError("give either `auth` or an `Authorization` header, not both")
