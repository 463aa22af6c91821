"""Tokens that come from elsewhere: a fixed one, or whatever a function gives each time."""

import inspect
from collections.abc import Awaitable, Callable, Mapping

from mcpearl.auth.client.web import Reach
from mcpearl.net.http_client.exchange import Header
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.transports.http_client.authorizer import Refusal

TokenCallable = Callable[[], Awaitable[str | None] | str | None]


class BearerToken:
    """A bearer token, or a function (also an async one) that gives it for each request.

    >>> Client("https://example.com/mcp", auth=BearerToken(os.environ["TOKEN"]))

    A function is asked again when the server refuses what it gave; when it then gives the same, the
    call fails. None sends the request without a token.
    """

    def __init__(self, token: str | TokenCallable) -> None:
        if not token:
            raise ValueError("the bearer token is empty")
        self._token = token

    def authorizer(self, url: str, reach: Reach) -> "BearerToken":
        """Authorize requests to any server: a token of one's own is one's own to show."""
        return self

    def headers(self, method: str, url: str) -> list[Header] | Awaitable[list[Header]]:
        """Give the `Authorization` header."""
        token = self._token() if callable(self._token) else self._token
        return _later(token) if inspect.isawaitable(token) else _header(token)

    async def refused(self, refusal: Refusal) -> bool:
        """Try again where a function has another token; a 403 is not about the token."""
        if refusal.status != 401:
            return False
        if callable(self._token) and refusal.attempt == 1:
            renewed = self.headers("", "")
            shown = renewed if isinstance(renewed, list) else await renewed
            if shown and shown != refusal.sent:
                return True
        what = "the token it was shown" if refusal.sent else "a request without a token"
        raise AuthorizationFailed(f"the server refused {what} (HTTP status 401)")

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Nothing in an answer changes the token."""

    def __repr__(self) -> str:
        return "BearerToken(…)"


async def _later(token: Awaitable[str | None]) -> list[Header]:
    return _header(await token)


def _header(token: str | None) -> list[Header]:
    return [] if token is None else [("Authorization", f"Bearer {token}")]
