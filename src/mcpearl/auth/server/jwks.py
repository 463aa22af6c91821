"""The keys an issuer signs with, fetched when needed and no more often than that.

An unknown key causes another fetch, since keys are rotated. However many tokens name unknown keys,
there is one fetch at a time, with a pause after each. If the issuer cannot be reached, known keys stay
valid for a day.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from mcpearl.auth.fetch import FetchError, FetchFailed, FetchPolicy, fetch_json
from mcpearl.auth.issuer import issuer_metadata
from mcpearl.auth.server.jose import fits, public_key
from mcpearl.auth.server.verifier import VerifierUnavailable
from mcpearl.runtime import clock

if TYPE_CHECKING:
    from joserfc.jwk import Key

logger = logging.getLogger("mcpearl.auth")
MAX_KEYS = 100
_MAX_TRIED = 8  # keys to try for a token that does not name its key
_MAX_STALE = 86_400.0  # seconds for which old keys are used while no new ones can be fetched


class IssuerKeys:
    """The public keys of one issuer."""

    def __init__(
        self,
        issuer: str,
        url: str | None,
        policy: FetchPolicy,
        *,
        max_age: float,
        pause: float,
    ) -> None:
        self._issuer = issuer
        self._given = url
        self._discovered: str | None = None
        self._policy = policy
        self._max_age = max_age
        self._pause = pause
        self._keys: list[Key] = []
        self._fetched = float("-inf")  # by the monotonic clock
        self._tried = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> "list[Key]":
        """Return the keys a token may be signed with: usually one, or none."""
        if clock.monotonic() - self._fetched > self._max_age:
            failing = bool(self._keys) and self._tried > self._fetched
            fetching = self._start()
            if fetching is not None and not failing:
                await asyncio.shield(fetching)
        found = self._matching(kid, algorithm)
        if not found:
            fetching = self._start()
            if fetching is not None:
                # Shielded: other requests wait for the same fetch.
                await asyncio.shield(fetching)
                found = self._matching(kid, algorithm)
        if not self._keys or clock.monotonic() - self._fetched > _MAX_STALE:
            raise VerifierUnavailable(f"the keys of {self._issuer} cannot be fetched")
        return found[:_MAX_TRIED]

    def _matching(self, kid: str | None, algorithm: str) -> "list[Key]":
        return [
            key
            for key in self._keys
            if (kid is None or key.kid is None or key.kid == kid) and fits(key, algorithm)
        ]

    def _start(self) -> "asyncio.Task[None] | None":
        """Start a fetch, or join the running one. Return None if one was made just now."""
        # A fetch that did not end belonged to an event loop that is closed.
        under_way = self._fetching is not None and not self._fetching.get_loop().is_closed()
        if not under_way and clock.monotonic() - self._tried >= self._pause:
            self._tried = clock.monotonic()
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            under_way = True
        return self._fetching if under_way else None

    async def _fetch(self) -> None:
        try:
            document = await self._document()
            listed = document.get("keys")
            if not isinstance(listed, list):
                raise FetchFailed("the key set has no list `keys`")
            keys = [key for key in map(public_key, listed[:MAX_KEYS]) if key is not None]
            if not keys:
                raise FetchFailed("the key set has no supported signature key")
        except FetchError as error:
            self._discovered = None  # the URL may have changed
            logger.warning("the keys of %s could not be fetched: %s", self._issuer, error)
        else:
            self._keys = keys
            self._fetched = clock.monotonic()
        finally:
            self._fetching = None

    async def _document(self) -> dict[str, Any]:
        url, policy = self._given, self._policy
        if url is None:
            url = await self._discover()
            policy = policy.towards(url, self._issuer)
        fetched = await fetch_json(url, policy=policy)
        if fetched.status != 200 or not isinstance(fetched.body, dict):
            raise FetchFailed(f"{url} answered {fetched.status}, not a key set")
        return fetched.body

    async def _discover(self) -> str:
        if self._discovered is None:
            metadata = await issuer_metadata(self._issuer, self._policy)
            url = metadata.get("jwks_uri")
            if not isinstance(url, str):
                raise FetchFailed(f"the metadata of {self._issuer} has no `jwks_uri`")
            self._discovered = url
        return self._discovered
