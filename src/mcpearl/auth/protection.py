"""What `Server(auth=…)` takes, and the gate that is made of it."""

from collections.abc import Callable, Iterable

from mcpearl.auth.gate import TokenGate
from mcpearl.auth.resource_server import ResourceServer
from mcpearl.auth.verifier import Verifier
from mcpearl.transports.http_gate import Gate

Auth = Verifier | ResourceServer | Gate
"""A verifier of tokens, one with settings around it, or a gate of one's own."""


def gate_of(
    auth: Auth, path: str, known_scopes: Callable[[], Iterable[str]], also: Iterable[str] = ()
) -> Gate:
    """Make the gate of an endpoint at this path, and of what else is served beside it."""
    if isinstance(auth, ResourceServer | Verifier):
        return TokenGate(_settings(auth), path, known_scopes, also)
    if callable(getattr(auth, "admit", None)):
        return auth
    raise TypeError(
        f"`auth` is a {type(auth).__name__}; it takes a verifier (`JWTVerifier`, `StaticTokens`, "
        "anything with `async def verify(self, token)`), a `ResourceServer` or `ClientCertificates`"
    )


def for_workers(auth: Auth) -> Auth:
    """Prepare what workers are forked with: what one of them has seen, all of them have."""
    if not isinstance(auth, ResourceServer | Verifier):
        return auth  # a gate of one's own
    settings = _settings(auth)
    settings.share_proofs()
    return settings


def _settings(auth: ResourceServer | Verifier) -> ResourceServer:
    """Give the settings around a verifier."""
    return auth if isinstance(auth, ResourceServer) else ResourceServer(auth)
