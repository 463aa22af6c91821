"""The interface of verifiers, and the checks of claims that they share."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from mcpearl.auth.principal import Principal
from mcpearl.protocol.errors import McpearlError


class TokenRefused(McpearlError):
    """A token is not accepted. The message says why, and never contains the token."""


class VerifierUnavailable(McpearlError):
    """It cannot be decided now whether a token is valid. This is not the client's fault."""


@runtime_checkable
class Verifier(Protocol):
    """Finds the principal of a token.

    It must check that the token was issued for this server (its audience), and by which issuer.
    """

    async def verify(self, token: str) -> Principal | None:
        """Return the principal. Return None, or raise `TokenRefused`, if the token is not valid.

        Args:
            token: The access token.
        """
        ...


def checked(verifier: Verifier) -> Verifier:
    """Raise `TypeError` at startup, not at the first request, if this is not a verifier."""
    if not callable(getattr(verifier, "verify", None)):
        raise TypeError(
            f"{type(verifier).__name__} has no `verify`; a verifier is an object with "
            "`async def verify(self, token)` that returns a `Principal`"
        )
    return verifier


@runtime_checkable
class OfIssuer(Protocol):
    """A verifier of the tokens of one issuer."""

    @property
    def issuer(self) -> str | None:
        """The issuer; None if it is not known."""


@runtime_checkable
class OfIssuers(Protocol):
    """A verifier of the tokens of several issuers."""

    @property
    def issuers(self) -> Iterable[str]:
        """The issuers."""


@runtime_checkable
class ForAudience(Protocol):
    """A verifier that demands an audience."""

    @property
    def audience(self) -> frozenset[str]:
        """The accepted audiences; a token must be for at least one of them."""


def issuers_of(verifier: object) -> list[str]:
    """Return the issuers of a verifier, which may be none, one or several."""
    if isinstance(verifier, OfIssuers):
        return list(verifier.issuers)
    if isinstance(verifier, OfIssuer) and verifier.issuer is not None:
        return [verifier.issuer]
    return []


def audience_of(verifier: object) -> frozenset[str]:
    """Return the audiences that a verifier demands; none if it does not say."""
    said = verifier.audience if isinstance(verifier, ForAudience) else None
    return said if isinstance(said, frozenset) else frozenset()


def principal_of(claims: Mapping[str, Any]) -> Principal:
    """Read the principal from claims, as named by RFC 9068, RFC 7662 and common variants."""
    client = _text(claims, "client_id") or _text(claims, "azp")
    subject = _text(claims, "sub") or client
    if subject is None:
        raise TokenRefused("it names neither a subject nor a client")
    return Principal(
        subject,
        client_id=client,
        issuer=_text(claims, "iss"),
        scopes=_scopes(claims),
        claims=claims,
        expires=time_of(claims, "exp"),
    )


def check_audience(claims: Mapping[str, Any], audience: frozenset[str]) -> None:
    """Raise `TokenRefused` unless the claims are for this audience."""
    given = claims.get("aud")
    meant = {given} if isinstance(given, str) else set(_strings(given))
    if not meant & audience:
        raise TokenRefused("it was issued for another audience" if meant else "it has no audience")


def check_times(claims: Mapping[str, Any], now: float, leeway: float, *, must_end: bool) -> None:
    """Raise `TokenRefused` if the claims have expired or are not valid yet."""
    expires = time_of(claims, "exp")
    if expires is None and must_end:
        raise TokenRefused("it does not say when it expires")
    if expires is not None and now >= expires + leeway:
        raise TokenRefused("it has expired")
    for name in ("nbf", "iat"):
        begins = time_of(claims, name)
        if begins is not None and now < begins - leeway:
            raise TokenRefused("it is not valid yet")


def audiences(given: str | Iterable[str]) -> frozenset[str]:
    """Return the audiences of a verifier as a set. Raises `ValueError` if there is none."""
    found = frozenset((given,) if isinstance(given, str) else given)
    if not found or "" in found:
        raise ValueError("a verifier needs the audience that tokens must be issued for")
    return found


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    given = claims.get("scope", claims.get("scp"))
    return given.split() if isinstance(given, str) else _strings(given)


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    return value if isinstance(value, str) and value else None


def time_of(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a time in seconds since 1970, or None if the claim is missing."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e15 < value < 1e15:
        raise TokenRefused(f"its `{name}` is not a time")
    return float(value)
