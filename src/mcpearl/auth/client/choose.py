"""From what `Client(auth=…)` was given to the authorizer of one server."""

from ssl import SSLContext
from typing import Any, Protocol

from mcpearl.auth.client.bearer import BearerToken
from mcpearl.auth.client.web import Reach
from mcpearl.net.tls import Tls
from mcpearl.transports.http_client.authorizer import Authorizer


class ClientAuth(Protocol):
    """A way of getting into servers. One of these can serve several clients and servers."""

    def authorizer(self, url: str, reach: Reach) -> Authorizer:
        """Give what authorizes requests to the server at `url`, and how that is reached."""
        ...


def authorizer_for(
    auth: Any, url: str, tls: Tls | SSLContext | None = None, proxy: str | None = None
) -> Authorizer:
    """Find out what was given; the error lists what it can be."""
    if auth == "oauth":
        from mcpearl.auth.client.oauth import OAuth

        auth = OAuth()
    elif callable(auth) and not hasattr(auth, "authorizer"):
        auth = BearerToken(auth)
    if not hasattr(auth, "authorizer"):
        raise TypeError(
            f"`auth` cannot be of type {type(auth).__name__}; give 'oauth' to log in with the "
            "browser, BearerToken(…), OAuth(…), ClientCredentials(…), EnterpriseManaged(…), "
            "WorkloadIdentity(…), or a function that gives a token"
        )
    authorizer: Authorizer = auth.authorizer(url, Reach.by(tls, proxy))
    return authorizer
