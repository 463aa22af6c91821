"""The principal: the authenticated caller, as its verified token or certificate describes it."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from mcpearl.runtime import clock
from mcpearl.runtime.arguments import refuse_text

Identity = tuple[str | None, str, str | None]


class Principal:
    """An authenticated caller, and its scopes.

    Two principals are equal if issuer, subject and client are equal. Scopes and claims do not count:
    a refreshed token belongs to the same principal, which keeps its sessions.

    Args:
        subject: The user or program, as its issuer names it.
        client_id: The OAuth client that the caller uses.
        issuer: The issuer of the token or certificate.
        scopes: The scopes that were granted.
        claims: Everything else that the token says.
        expires: When the token expires, in seconds since 1970; None if it does not.
    """

    __slots__ = ("_hash", "claims", "client_id", "expires", "issuer", "scopes", "subject")

    def __init__(
        self,
        subject: str,
        *,
        client_id: str | None = None,
        issuer: str | None = None,
        scopes: Iterable[str] = (),
        claims: Mapping[str, Any] | None = None,
        expires: float | None = None,
    ) -> None:
        self.subject = subject
        self.client_id = client_id
        self.issuer = issuer
        refuse_text("scopes", scopes)
        self.scopes = frozenset(scopes)
        self.claims: Mapping[str, Any] = MappingProxyType(dict(claims or {}))
        self.expires = expires
        """When the token or certificate expires, in seconds since 1970; None if it does not say."""
        self._hash = hash(self.identity)

    @property
    def identity(self) -> Identity:
        """The part that stays the same when the token is refreshed."""
        return self.issuer, self.subject, self.client_id

    @property
    def time_left(self) -> float | None:
        """Seconds until the token or certificate expires; None if it does not say."""
        return None if self.expires is None else max(0.0, self.expires - clock.now())

    def with_scopes(self, scopes: frozenset[str]) -> "Principal":
        """Return the same principal with other scopes.

        Args:
            scopes: The scopes it has instead.
        """
        return Principal(
            self.subject,
            client_id=self.client_id,
            issuer=self.issuer,
            scopes=scopes,
            claims=self.claims,
            expires=self.expires,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and self.identity == other.identity

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        client = "" if self.client_id is None else f", client_id={self.client_id!r}"
        return f"Principal({self.subject!r}{client}, scopes={sorted(self.scopes)})"


ANONYMOUS = Principal("")
"""The principal of callers on a wire that does not authenticate them: it has no scopes."""
