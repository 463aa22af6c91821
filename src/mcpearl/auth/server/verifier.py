"""What every verifier is: a token goes in, a principal or the reason against it comes out."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from mcpearl.auth.principal import Principal
from mcpearl.protocol.errors import McpearlError


class TokenRefused(McpearlError):
    """A token that is not accepted, and why. The reason never contains the token."""


class VerifierUnavailable(McpearlError):
    """Nobody can tell at the moment whether a token is good. It is not the client's fault."""


@runtime_checkable
class Verifier(Protocol):
    """Anything that can tell who a token belongs to.

    It must make sure that the token was issued for this server (its audience), and by whom.
    """

    async def verify(self, token: str) -> Principal | None:
        """Give the principal; None, or raise `TokenRefused`, when the token is not good."""
        ...


def checked(verifier: Verifier) -> Verifier:
    """Refuse what is no verifier when it is given, and not when the first client comes."""
    if not callable(getattr(verifier, "verify", None)):
        raise TypeError(
            f"{type(verifier).__name__} has no `verify`; a verifier is an object with "
            "`async def verify(self, token)` that gives a `Principal`"
        )
    return verifier


def issuers_of(verifier: object) -> list[str]:
    """Give the issuers of a verifier: the one it names, or all of several."""
    several = getattr(verifier, "issuers", None)
    if several is not None:
        return list(several)
    issuer = getattr(verifier, "issuer", None)
    return [] if issuer is None else [issuer]


def principal_of(claims: Mapping[str, Any]) -> Principal:
    """Read who claims speak of, in the words of RFC 9068 and RFC 7662 and their common variants."""
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
    """Refuse claims that are meant for somebody else, or for nobody in particular."""
    given = claims.get("aud")
    meant = {given} if isinstance(given, str) else set(_strings(given))
    if not meant & audience:
        raise TokenRefused("it was issued for another audience" if meant else "it has no audience")


def check_times(claims: Mapping[str, Any], now: float, leeway: float, *, must_end: bool) -> None:
    """Refuse claims that are over, or have not begun."""
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
    """Read the audience a verifier was given; there must be one."""
    found = frozenset((given,) if isinstance(given, str) else given)
    if not found or "" in found:
        raise ValueError("a verifier needs the audience tokens must be issued for")
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
    """Read a time, in seconds since 1970; None when there is none."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e15 < value < 1e15:
        raise TokenRefused(f"its `{name}` is no time")
    return float(value)
