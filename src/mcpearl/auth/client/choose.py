"""Makes the authorizer of one server from what is passed to `Client(auth=…)`."""

from ssl import SSLContext
from typing import Any, Protocol

from mcpearl.auth.client.bearer import BearerToken
from mcpearl.auth.client.web import Reach
from mcpearl.net.tls import Tls
from mcpearl.transports.http_client.authorizer import Authorizer


class ClientAuth(Protocol):
    """A way of logging in. One object can be used by several clients and servers."""

    def authorizer(self, url: str, reach: Reach) -> Authorizer:
        """Return the authorizer of requests to the server at `url`.

        Args:
            url: The URL of the server.
            reach: How the server is reached.
        """
        ...


def authorizer_for(
    auth: Any, url: str, tls: Tls | SSLContext | None = None, proxy: str | None = None
) -> Authorizer:
    """Return the authorizer for `auth`. Raises `TypeError`, listing what can be passed."""
    if auth == "oauth":
        from mcpearl.auth.client.oauth import OAuth

        auth = OAuth()
    elif callable(auth) and not hasattr(auth, "authorizer"):
        auth = BearerToken(auth)
    if not hasattr(auth, "authorizer"):
        raise TypeError(
            f"`auth` cannot be of type {type(auth).__name__}; pass 'oauth' to log in with the "
            "browser, BearerToken(…), OAuth(…), ClientCredentials(…), EnterpriseManaged(…), "
            "WorkloadIdentity(…), or a function that returns a token"
        )
    authorizer: Authorizer = auth.authorizer(url, Reach.by(tls, proxy))
    return authorizer
