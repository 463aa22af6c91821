"""From what `Client(auth=…)` was given to the authorizer of one server."""

from ssl import SSLContext
from typing import Any, Protocol

from mcpearl.auth.bearer import BearerToken
from mcpearl.transports.http_authorizer import Authorizer
from mcpearl.transports.tls import Tls, client_context


class ClientAuth(Protocol):
    """A way of getting into servers. One of these can serve several clients and servers."""

    def authorizer(self, url: str, tls: SSLContext | None = None) -> Authorizer:
        """Give what authorizes requests to the server at `url`, which is reached with `tls`."""
        ...


def authorizer_for(auth: Any, url: str, tls: Tls | SSLContext | None = None) -> Authorizer:
    """Find out what was given; the error lists what it can be."""
    if auth == "oauth":
        from mcpearl.auth.oauth import OAuth

        auth = OAuth()
    elif callable(auth) and not hasattr(auth, "authorizer"):
        auth = BearerToken(auth)
    if not hasattr(auth, "authorizer"):
        raise TypeError(
            f"`auth` cannot be of type {type(auth).__name__}; give 'oauth' to log in with the "
            "browser, BearerToken(…), OAuth(…), ClientCredentials(…), EnterpriseManaged(…), "
            "WorkloadIdentity(…), or a function that gives a token"
        )
    context = None if tls is None else client_context(tls, ["http/1.1"])
    authorizer: Authorizer = auth.authorizer(url, context)
    return authorizer
