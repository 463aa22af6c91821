"""Verifies signed JWT access tokens (RFC 9068, RFC 7519).

Cheap checks come first (form, issuer, audience, times), so that a wrong token costs little; nothing in
a token is trusted before its signature has been checked.
"""

from collections.abc import Iterable

from mcpearl.auth.fetch import FetchPolicy
from mcpearl.auth.principal import Principal
from mcpearl.auth.server import jose
from mcpearl.auth.server.jwks import IssuerKeys
from mcpearl.auth.server.verifier import (
    TokenRefused,
    audiences,
    check_audience,
    check_times,
    principal_of,
)
from mcpearl.runtime import clock
from mcpearl.runtime.arguments import refuse_text

_TYPES = frozenset({"jwt", "at+jwt"})
_OWN_NETWORK = FetchPolicy(allow_loopback=True, allow_private=True)


class JWTVerifier:
    """Verifies JWT access tokens of one issuer.

    Args:
        issuer: The authorization server, exactly as its tokens name it.
        audience: The audience, or audiences, that tokens must be issued for.
        jwks_url: Where the issuer's keys are; by default as its metadata says.
        algorithms: The accepted signature algorithms.
        leeway: Seconds by which clocks may differ.
        keys_max_age: Seconds after which the keys are fetched again.
        keys_pause: Seconds between two fetches caused by unknown keys.
        fetch: Where keys and metadata may be fetched from.

    >>> JWTVerifier(issuer="https://login.example.com", audience="https://mcp.example.com/mcp")
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Iterable[str],
        jwks_url: str | None = None,
        algorithms: Iterable[str] = tuple(jose.ALGORITHMS),
        leeway: float = 30.0,
        keys_max_age: float = 600.0,
        keys_pause: float = 5.0,
        fetch: FetchPolicy = _OWN_NETWORK,
    ) -> None:
        self.issuer = issuer
        self.audience = audiences(audience)
        refuse_text("algorithms", algorithms)
        self._algorithms = frozenset(algorithms)
        unknown = self._algorithms - jose.ALGORITHMS.keys()
        if unknown or not self._algorithms:
            raise ValueError(
                f"unknown algorithms {sorted(unknown)}; use some of {', '.join(jose.ALGORITHMS)}"
            )
        self._leeway = leeway
        self._keys = IssuerKeys(issuer, jwks_url, fetch, max_age=keys_max_age, pause=keys_pause)

    async def verify(self, token: str) -> Principal:
        """Return the principal of a token. Raises `TokenRefused` or `VerifierUnavailable`.

        Args:
            token: The access token.
        """
        signed = jose.read(token)
        self._check_header(signed)
        claims = signed.claims
        if claims.get("iss") != self.issuer:
            raise TokenRefused("it comes from another issuer")
        check_audience(claims, self.audience)
        check_times(claims, clock.now(), self._leeway, must_end=True)
        principal = principal_of(claims)
        kid = signed.header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise TokenRefused("its key id is not text")
        keys = await self._keys.find(kid, signed.algorithm)
        if not keys:
            raise TokenRefused("the issuer has no such key")
        if not any(jose.is_signed_by(signed, key) for key in keys):
            raise TokenRefused("its signature is wrong")
        return principal

    def _check_header(self, signed: jose.Signed) -> None:
        if signed.algorithm not in self._algorithms:
            raise TokenRefused("its algorithm is not allowed")
        kind = signed.header.get("typ", "JWT")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TYPES:
            raise TokenRefused("it is not an access token")
