"""A token as a client holds it: what to show, until when, and what renews it."""

from typing import Any

import msgspec
from msgspec import Struct

from mcpearl.auth.client.challenge import scopes_in
from mcpearl.auth.client.identity import Identity
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.runtime import clock

_EARLY = 30.0  # seconds before its end that a token counts as over, unless it lives shorter
_EARLY_SHARE = 0.1  # of its life, then
_MAX_TOKEN = 32 * 1024  # characters; a header has to hold it


class Token(Struct, frozen=True):
    """What an authorization server gave. Its text shows none of it."""

    access_token: str
    issuer: str
    resource: str
    token_type: str = "Bearer"
    expires_at: float | None = None
    """When to renew it, by the clock of this machine."""
    refresh_token: str | None = None
    scopes: tuple[str, ...] = ()
    """What was granted."""
    requested: tuple[str, ...] = ()
    """What was asked for, in all."""
    key: dict[str, Any] | None = None
    """The private key the token is bound to, if it is."""
    client: Identity | None = None
    """As whom it was asked for, where that was registered on the way."""

    @property
    def bound(self) -> bool:
        """Whether the token needs a proof beside it."""
        return self.token_type.lower() == "dpop"

    @property
    def over(self) -> bool:
        """Whether it is time for another one."""
        return self.expires_at is not None and clock.now() >= self.expires_at

    def __repr__(self) -> str:
        return f"<Token for {self.resource} of {self.issuer}>"


class _Answer(Struct):
    access_token: str
    token_type: str = "Bearer"
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


def read_token(body: Any, issuer: str, resource: str, requested: tuple[str, ...]) -> Token:
    """Read the answer of a token endpoint."""
    try:
        answer = msgspec.convert(body, _Answer)
    except msgspec.ValidationError as error:
        raise AuthorizationFailed(f"{issuer} answered with what is no token: {error}") from None
    shown = answer.access_token
    if not shown or len(shown) > _MAX_TOKEN or not shown.isascii() or not shown.isprintable():
        raise AuthorizationFailed(f"{issuer} gave a token that does not fit into a header")
    if answer.token_type.lower() not in ("bearer", "dpop"):
        raise AuthorizationFailed(
            f"{issuer} gave a token of the unknown type {answer.token_type!r:.64}"
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
