"""Makes the gate of an endpoint from what is passed to `Server(auth=…)`."""

from collections.abc import Callable, Iterable, Sequence

from mcpearl.auth.server.gate import TokenGate
from mcpearl.auth.server.resource_server import ResourceServer
from mcpearl.auth.server.verifier import Verifier
from mcpearl.stores.proofs import ProofStore
from mcpearl.transports.http_server.gate import Gate

Auth = Verifier | Sequence[Verifier] | ResourceServer | Gate
"""A verifier, several verifiers, a verifier with settings, or a custom gate."""


def gate_of(
    auth: Auth,
    path: str,
    known_scopes: Callable[[], Iterable[str]],
    also: Iterable[str] = (),
    proof_store: ProofStore | None = None,
    nonce_keys: Callable[[], Sequence[bytes]] | None = None,
) -> Gate:
    """Return the gate of the endpoint at `path`, and of the paths in `also` beside it."""
    settings = _settings(auth)
    if isinstance(settings, ResourceServer):
        return TokenGate(settings, path, known_scopes, also, proof_store, nonce_keys)
    if callable(getattr(settings, "admit", None)):
        return settings
    raise _no_auth(auth)


def for_workers(auth: Auth) -> Auth:
    """Prepare `auth` for workers that will be forked: they share the memory of used proofs."""
    settings = _settings(auth)
    if isinstance(settings, ResourceServer):
        settings.share_proofs()
    return settings


def _settings(auth: Auth) -> ResourceServer | Gate:
    """Return the settings around verifiers; a custom gate is returned unchanged."""
    if isinstance(auth, str):
        raise _no_auth(auth)  # a string is a sequence too
    if isinstance(auth, Verifier | Sequence):
        return ResourceServer(auth)
    return auth


def _no_auth(given: object) -> TypeError:
    return TypeError(
        f"`auth` is a {type(given).__name__}; pass a verifier (`JWTVerifier`, `StaticTokens`, "
        "anything with `async def verify(self, token)`), a list of these, a `ResourceServer` or "
        "`ClientCertificates`"
    )
