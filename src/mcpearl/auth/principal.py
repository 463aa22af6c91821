"""Who is asking: what a verified token, or certificate, says of the one who brought it."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from mcpearl.runtime import clock

Identity = tuple[str | None, str, str | None]


class Principal:
    """Someone known, and what they may do.

    Two principals are equal when issuer, subject and client are the same. Scopes and claims do not
    count: a refreshed token is still the same somebody, and what they began stays theirs.
    """

    __slots__ = ("claims", "client_id", "expires", "issuer", "scopes", "subject")

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
        self.scopes = frozenset(scopes)
        self.claims: Mapping[str, Any] = MappingProxyType(dict(claims or {}))
        self.expires = expires
        """When what they brought ends, in seconds since 1970; None when it does not say."""

    @property
    def identity(self) -> Identity:
        """What stays the same from one token to the next."""
        return self.issuer, self.subject, self.client_id

    @property
    def time_left(self) -> float | None:
        """How many seconds what they brought is good for; None when it does not say."""
        return None if self.expires is None else max(0.0, self.expires - clock.now())

    def with_scopes(self, scopes: frozenset[str]) -> "Principal":
        """Give the same principal with other scopes."""
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
        return hash(self.identity)

    def __repr__(self) -> str:
        client = "" if self.client_id is None else f", client_id={self.client_id!r}"
        return f"Principal({self.subject!r}{client}, scopes={sorted(self.scopes)})"


ANONYMOUS = Principal("")
"""Somebody on a wire that could ask who they are and does not: they have no scopes at all."""
