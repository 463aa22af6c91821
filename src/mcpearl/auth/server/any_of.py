"""Combines several verifiers in one server, and chooses the ones to ask about a token."""

from collections.abc import Sequence

from mcpearl.auth.principal import Principal
from mcpearl.auth.server import jose
from mcpearl.auth.server.introspection import IntrospectionVerifier
from mcpearl.auth.server.jwt import JWTVerifier
from mcpearl.auth.server.verifier import (
    TokenRefused,
    Verifier,
    VerifierUnavailable,
    audience_of,
    checked,
    issuers_of,
)


class AnyOf:
    """Accepts the tokens of several verifiers; `auth=[…, …]` is short for it.

    A JWT goes to the verifiers of the issuer it names, which check that this issuer signed it. If there
    is none, the verifiers without an issuer are asked, in order. Opaque tokens go to the verifiers
    that accept them. A token is never shown to an issuer that cannot have issued it.

    Args:
        verifiers: The verifiers, in the order to ask them.

    >>> AnyOf(JWTVerifier(issuer=staff, audience=url), JWTVerifier(issuer=partners, audience=url))
    """

    def __init__(self, *verifiers: Verifier) -> None:
        if not verifiers:
            raise ValueError("`auth` is an empty list; it needs at least one verifier")
        self._verifiers = [checked(verifier) for verifier in verifiers]
        self._by_issuer: dict[str, list[Verifier]] = {}
        for verifier in verifiers:
            for issuer in issuers_of(verifier):
                self._by_issuer.setdefault(issuer, []).append(verifier)
        self._of_anybody = [each for each in verifiers if not issuers_of(each)]
        self._of_opaque = [each for each in verifiers if not isinstance(each, JWTVerifier)]
        asked = [each.issuer for each in verifiers if isinstance(each, IntrospectionVerifier)]
        if len(set(asked)) > 1:
            raise ValueError(
                f"an opaque token would be shown to all of {', '.join(asked)}, though only one of them "
                "issued it; use at most one `IntrospectionVerifier`"
            )

    @property
    def issuers(self) -> list[str]:
        """The issuers, in the order of their verifiers."""
        return list(self._by_issuer)

    @property
    def audience(self) -> frozenset[str]:
        """The audiences of all verifiers that have one."""
        return frozenset[str]().union(*map(audience_of, self._verifiers))

    async def verify(self, token: str) -> Principal:
        """Return the principal of a token. Raises `TokenRefused`.

        Args:
            token: The access token.
        """
        refused: TokenRefused | None = None
        unavailable: VerifierUnavailable | None = None
        for verifier in self._choose(token):
            try:
                principal = await verifier.verify(token)
            except TokenRefused as error:
                refused = refused or error
            except VerifierUnavailable as error:
                unavailable = unavailable or error
            else:
                if principal is not None:
                    return principal
        # If one verifier could not decide, the token may still be valid.
        raise unavailable or refused or TokenRefused("it is not known")

    def _choose(self, token: str) -> Sequence[Verifier]:
        try:
            issuer = jose.read(token).claims.get("iss")
        except TokenRefused:
            issuer = None
        if not isinstance(issuer, str):
            return self._of_opaque or self._verifiers
        chosen = self._by_issuer.get(issuer, self._of_anybody)
        if not chosen:
            raise TokenRefused("it comes from another issuer")
        return chosen
