"""A token as a client holds it: the secret, its expiry, and what is needed to refresh it."""

from typing import Any

import msgspec
from msgspec import Struct

from mcpearl.auth.client.challenge import scopes_in
from mcpearl.auth.client.identity import ClientIdentity
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.runtime import clock

_EARLY = 30.0  # seconds before its expiry at which a token is refreshed
_EARLY_SHARE = 0.1  # of its lifetime, if that is less
_MAX_TOKEN = 32 * 1024  # characters; a header has to hold it


class Token(Struct, frozen=True):
    """A token issued by an authorization server. Its `repr` contains no secret."""

    access_token: str
    issuer: str
    resource: str
    token_type: str = "Bearer"
    expires_at: float | None = None
    """When to refresh it, by this machine's clock."""
    refresh_token: str | None = None
    scopes: tuple[str, ...] = ()
    """The granted scopes."""
    requested: tuple[str, ...] = ()
    """All scopes that were requested."""
    key: dict[str, Any] | None = None
    """The private key that the token is bound to, if any."""
    client: ClientIdentity | None = None
    """The client it was issued to, if that was registered during the login."""

    @property
    def bound(self) -> bool:
        """Whether the token needs a proof."""
        return self.token_type.lower() == "dpop"

    @property
    def over(self) -> bool:
        """Whether the token should be refreshed."""
        return self.expires_at is not None and clock.now() >= self.expires_at

    def __repr__(self) -> str:
        return f"<Token for {self.resource} of {self.issuer}>"


class _TokenAnswer(Struct):
    access_token: str
    token_type: str = "Bearer"
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


def read_token(body: Any, issuer: str, resource: str, requested: tuple[str, ...]) -> Token:
    """Read the response of a token endpoint. Raises `AuthorizationFailed`."""
    try:
        answer = msgspec.convert(body, _TokenAnswer)
    except msgspec.ValidationError as error:
        raise AuthorizationFailed(f"the answer of {issuer} is not a token: {error}") from None
    shown = answer.access_token
    if not shown or len(shown) > _MAX_TOKEN or not shown.isascii() or not shown.isprintable():
        raise AuthorizationFailed(f"{issuer} issued a token that does not fit into a header")
    if answer.token_type.lower() not in ("bearer", "dpop"):
        raise AuthorizationFailed(
            f"{issuer} issued a token of the unknown type {answer.token_type!r:.64}"
        )
    return Token(
        shown,
        issuer,
        resource,
        answer.token_type,
        _renew_at(answer.expires_in),
        answer.refresh_token,
        requested if answer.scope is None else scopes_in(answer.scope),
        requested,
    )


def _renew_at(expires_in: float | str | None) -> float | None:
    try:
        seconds = None if expires_in is None else float(expires_in)
    except ValueError:
        seconds = None
    if seconds is None or not 0 < seconds < 1e10:
        return None
    return clock.now() + seconds - min(_EARLY, seconds * _EARLY_SHARE)
