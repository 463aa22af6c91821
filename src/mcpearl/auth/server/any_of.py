"""Several verifiers in one server: which of them is asked about a token."""

from collections.abc import Sequence

from mcpearl.auth.principal import Principal
from mcpearl.auth.server import jose
from mcpearl.auth.server.introspection import IntrospectionVerifier
from mcpearl.auth.server.jwt import JWTVerifier
from mcpearl.auth.server.verifier import (
    TokenRefused,
    Verifier,
    VerifierUnavailable,
    checked,
    issuers_of,
)


class AnyOf:
    """Lets in who any of these verifiers lets in; `auth=[…, …]` is short for it.

    A JWT goes to the verifiers of the issuer it names, which is how it is sorted and nothing more:
    they check who has signed it. Where none is of that issuer, and for tokens that name none, the
    others are asked in their order. No token is shown to an issuer it cannot be of.

    >>> AnyOf(JWTVerifier(issuer=staff, audience=url), JWTVerifier(issuer=partners, audience=url))
    """

    def __init__(self, *verifiers: Verifier) -> None:
        if not verifiers:
            raise ValueError("`auth` is an empty list: it needs at least one verifier")
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
                f"opaque tokens would be shown to all of {', '.join(asked)}, though each is of one "
                "of them; there can be one issuer that is asked (`IntrospectionVerifier`)"
            )

    @property
    def issuers(self) -> list[str]:
        """All of them, in the order of the verifiers."""
        return list(self._by_issuer)

    @property
    def audience(self) -> frozenset[str]:
        """Whom tokens may be for, by any of the verifiers that say so."""
        said = [getattr(verifier, "audience", None) for verifier in self._verifiers]
        return frozenset().union(*(each for each in said if isinstance(each, frozenset)))

    async def verify(self, token: str) -> Principal:
        """Give the principal of a token, or raise `TokenRefused`."""
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
        # It might be good after all, if one could not say.
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
