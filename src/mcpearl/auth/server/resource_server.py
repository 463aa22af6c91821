"""The server as an OAuth protected resource: its settings, and the metadata it publishes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from mcpearl.auth.server.jose import ALGORITHMS
from mcpearl.auth.server.proof_memory import ProofMemory
from mcpearl.auth.server.verifier import Verifier, audience_of, checked, issuers_of
from mcpearl.runtime import clock
from mcpearl.runtime.arguments import refuse_text

METADATA_PATH = "/.well-known/oauth-protected-resource"


class ResourceServer:
    """How a server is protected, if the defaults around a verifier do not fit.

    Args:
        verifier: A verifier, or several as a list (see `AnyOf`).
        resource: The URL that clients use; set it behind a proxy. By default the verifier's audience if
            that is a single URL, otherwise the URL of each request.
        authorization_servers: Issuers where clients can log in; by default those of the verifiers.
        scopes: Scopes that every request needs; `@app.tool(scopes=…)` adds more for one tool.
        implies: Broader scopes, and the scopes that each contains.
        name: Name of the server, for the metadata document.
        documentation: URL of a page for developers, for the metadata document.
        recheck: Seconds until a verified token is verified again: how long a revoked token may still be
            accepted.
        max_known: Verified tokens to remember; at the limit the oldest is dropped.
        dpop: Whether tokens must be bound to a key. Bound tokens always need a proof.
        dpop_max_age: Seconds by which the time of a proof may differ from the server's clock.
        dpop_nonces: Whether proofs must contain a nonce of this server.
        dpop_max_remembered: Used proofs to remember; at the limit requests are answered with 503.

    >>> app.run("http", auth=ResourceServer(verifier, scopes=["mcp"], implies={"admin": ["mcp"]}))
    """

    def __init__(
        self,
        verifier: Verifier | Sequence[Verifier],
        *,
        resource: str | None = None,
        authorization_servers: Iterable[str] | None = None,
        scopes: Iterable[str] = (),
        implies: Mapping[str, Iterable[str]] | None = None,
        name: str | None = None,
        documentation: str | None = None,
        recheck: float = 60.0,
        max_known: int = 10_000,
        dpop: Literal["allowed", "required"] = "allowed",
        dpop_max_age: float = 60.0,
        dpop_nonces: bool = False,
        dpop_max_remembered: int = 200_000,
    ) -> None:
        if isinstance(verifier, Sequence):
            from mcpearl.auth.server.any_of import AnyOf

            verifier = AnyOf(*verifier)
        self.verifier = checked(verifier)
        self.resource = resource if resource is not None else _address_of(verifier)
        self.authorization_servers = list(
            issuers_of(verifier) if authorization_servers is None else authorization_servers
        )
        refuse_text("scopes", scopes)
        refuse_text("authorization_servers", authorization_servers)
        for broad, contained in (implies or {}).items():
            refuse_text(broad, contained)
        self.scopes = frozenset(scopes)
        self._implied = {broad: frozenset(narrow) for broad, narrow in (implies or {}).items()}
        self.name = name
        self.documentation = documentation
        self.recheck = recheck
        self.max_known = max_known
        self.dpop_required = dpop == "required"
        self.dpop_max_age = dpop_max_age
        self.dpop_nonces = dpop_nonces
        secret = clock.random_bytes(32)  # made here, so that forked workers share it
        self.nonce_secrets = lambda: (secret,)
        self.dpop_max_remembered = dpop_max_remembered
        self.proofs: ProofMemory | None = None  # shared by workers; None if each gate has its own

    def share_proofs(self) -> None:
        """Remember used proofs for all workers that will be forked from this process."""
        from mcpearl.auth.server.shared_proofs import SharedProofs

        self.proofs = SharedProofs(self.dpop_max_remembered)

    def widened(self, scopes: frozenset[str]) -> frozenset[str]:
        """Return scopes together with all that they imply.

        Args:
            scopes: The scopes of a token.
        """
        found, open_ones = set(scopes), list(scopes)
        while open_ones:
            new = self._implied.get(open_ones.pop(), frozenset()) - found
            found |= new
            open_ones += new
        return frozenset(found)

    def metadata(self, resource: str, known_scopes: Iterable[str]) -> bytes:
        """Return the Protected Resource Metadata document (RFC 9728).

        Args:
            resource: The URL of the resource.
            known_scopes: Scopes to publish besides those that every request needs.
        """
        document: dict[str, Any] = {
            "resource": resource,
            "authorization_servers": self.authorization_servers,
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": list(ALGORITHMS),
        }
        scopes = sorted(self.scopes | frozenset(known_scopes))
        if scopes:
            document["scopes_supported"] = scopes
        if self.dpop_required:
            document["dpop_bound_access_tokens_required"] = True
        if self.name is not None:
            document["resource_name"] = self.name
        if self.documentation is not None:
            document["resource_documentation"] = self.documentation
        return msgspec.json.encode(document)


def _address_of(verifier: Verifier) -> str | None:
    """Return the audience of a verifier if it is a single URL, which is then the resource's."""
    audience = audience_of(verifier)
    if len(audience) != 1:
        return None
    (only,) = audience
    return only if only.startswith(("https://", "http://")) else None
