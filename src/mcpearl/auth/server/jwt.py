"""Access tokens that say themselves what they are: signed JWTs (RFC 9068, RFC 7519).

What is cheap is looked at first (form, issuer, audience, times), so that a wrong token costs little;
nothing of it is believed before the signature fits.
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

_TYPES = frozenset({"jwt", "at+jwt"})
_OWN_NETWORK = FetchPolicy(allow_loopback=True, allow_private=True)


class JWTVerifier:
    """Verifies JWT access tokens of one issuer.

    The keys come from `jwks_url`, or from where the issuer's metadata says. They are fetched anew
    every `keys_max_age` seconds, and when a token names a key that is not among them, then at most
    once in `keys_pause` seconds.

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
        self._algorithms = frozenset(algorithms)
        unknown = self._algorithms - jose.ALGORITHMS.keys()
        if unknown or not self._algorithms:
            raise ValueError(
                f"unknown algorithms {sorted(unknown)}; there is {', '.join(jose.ALGORITHMS)}"
            )
        self._leeway = leeway
        self._keys = IssuerKeys(issuer, jwks_url, fetch, max_age=keys_max_age, pause=keys_pause)

    async def verify(self, token: str) -> Principal:
        """Give the principal of a token, or raise `TokenRefused`."""
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
