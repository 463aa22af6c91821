"""Authorizes requests with a given bearer token, or with one that a function returns."""

import inspect
from collections.abc import Awaitable, Callable, Mapping

from mcpearl.auth.client.web import Reach
from mcpearl.net.http_client.exchange import Header
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.transports.http_client.authorizer import Refusal

TokenCallable = Callable[[], Awaitable[str | None] | str | None]


class BearerToken:
    """A bearer token, or a function (or async function) that returns it for each request.

    If the server refuses a token, the function is called again; if it returns the same one, the call
    fails. If it returns None, the request is sent without a token.

    Args:
        token: The token, or the function.

    >>> Client("https://example.com/mcp", auth=BearerToken(os.environ["TOKEN"]))
    """

    def __init__(self, token: str | TokenCallable) -> None:
        if not token:
            raise ValueError("the bearer token is empty")
        self._token = token

    def authorizer(self, url: str, reach: Reach) -> "BearerToken":
        """Return this object: the token is presented to whatever server the caller connects to.

        Args:
            url: The URL of the server.
            reach: How the server is reached.
        """
        return self

    def headers(self, method: str, url: str) -> list[Header] | Awaitable[list[Header]]:
        """Return the `Authorization` header.

        Args:
            method: The HTTP method of the request.
            url: The URL of the request.
        """
        token = self._token() if callable(self._token) else self._token
        return _later(token) if inspect.isawaitable(token) else _header(token)

    async def refused(self, refusal: Refusal) -> bool:
        """Return whether to try again with a new token from the function. Raises on a final 401.

        Args:
            refusal: The response of the server.
        """
        if refusal.status != 401:
            return False
        if callable(self._token) and refusal.attempt == 1:
            renewed = self.headers("", "")
            shown = renewed if isinstance(renewed, list) else await renewed
            if shown and shown != refusal.sent:
                return True
        what = "the token" if refusal.sent else "a request without a token"
        raise AuthorizationFailed(f"the server refused {what} (HTTP status 401)")

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Do nothing: a response does not change the token.

        Args:
            status: The HTTP status.
            headers: The headers of the response.
        """

    def __repr__(self) -> str:
        return "BearerToken(…)"


async def _later(token: Awaitable[str | None]) -> list[Header]:
    return _header(await token)


def _header(token: str | None) -> list[Header]:
    return [] if token is None else [("Authorization", f"Bearer {token}")]
