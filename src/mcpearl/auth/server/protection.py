"""What `Server(auth=…)` takes, and the gate that is made of it."""

from collections.abc import Callable, Iterable, Sequence

from mcpearl.auth.server.gate import TokenGate
from mcpearl.auth.server.resource_server import ResourceServer
from mcpearl.auth.server.verifier import Verifier
from mcpearl.transports.http_server.gate import Gate

Auth = Verifier | Sequence[Verifier] | ResourceServer | Gate
"""A verifier of tokens, several, one with settings around it, or a gate of one's own."""


def gate_of(
    auth: Auth, path: str, known_scopes: Callable[[], Iterable[str]], also: Iterable[str] = ()
) -> Gate:
    """Make the gate of an endpoint at this path, and of what else is served beside it."""
    settings = _settings(auth)
    if isinstance(settings, ResourceServer):
        return TokenGate(settings, path, known_scopes, also)
    if callable(getattr(settings, "admit", None)):
        return settings
    raise _no_auth(auth)


def for_workers(auth: Auth) -> Auth:
    """Prepare what workers are forked with: what one of them has seen, all of them have."""
    settings = _settings(auth)
    if isinstance(settings, ResourceServer):
        settings.share_proofs()
    return settings


def _settings(auth: Auth) -> ResourceServer | Gate:
    """Give the settings around verifiers; a gate of one's own stays what it is."""
    if isinstance(auth, str):
        raise _no_auth(auth)  # it is a sequence, but not of verifiers
    if isinstance(auth, Verifier | Sequence):
        return ResourceServer(auth)
    return auth


def _no_auth(given: object) -> TypeError:
    return TypeError(
        f"`auth` is a {type(given).__name__}; it takes a verifier (`JWTVerifier`, `StaticTokens`, "
        "anything with `async def verify(self, token)`), a list of these, a `ResourceServer` or "
        "`ClientCertificates`"
    )
