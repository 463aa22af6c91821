"""The login at one server: presents the token, refreshes it, and gets another if it is refused.

All requests that wait for a token wait for the same task, and other users of the store are locked out
meanwhile. Where the token came from decides what a 401 leads to ("accepted" means by this server):

    no token                      ──▶ grant
    stored, or accepted before    ──▶ refresh, or else grant
    refreshed, never accepted     ──▶ grant
    granted, never accepted       ──▶ failure: the two servers do not agree

A 403 that demands scopes not requested before leads to a grant with them too, any other to failure. A
`Grant` decides how a token is obtained: from a user in a browser, or with credentials of this program.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Protocol

import msgspec

from mcpearl.auth.client.challenge import Demand, read_demand
from mcpearl.auth.client.discovery import AuthServer, find_place
from mcpearl.auth.client.dpop import ProofKey
from mcpearl.auth.client.storage import Key, Storage
from mcpearl.auth.client.token import Token
from mcpearl.auth.client.token_endpoint import GrantRefused
from mcpearl.auth.client.web import Web, bare
from mcpearl.net.http_client.exchange import Header
from mcpearl.protocol.errors import AuthorizationFailed, McpearlError
from mcpearl.transports.http_client.authorizer import Refusal

logger = logging.getLogger("mcpearl.auth")

_MAX_ATTEMPTS = 5  # per request: refreshed, granted, more scopes, and nonces in between

Renewal = Callable[[], Coroutine[Any, Any, None]]


class Grant(Protocol):
    """A way to obtain tokens."""

    issuer: str | None
    """The only authorization server to use, if it is known."""
    portable: bool
    """Whether any authorization server may be used; else the first one found is the only one."""
    silent: bool
    """Whether a token can be obtained without involving a user."""
    scopes: tuple[str, ...]
    """Scopes that are always requested."""
    dpop: bool | None
    """Whether tokens must be bound to a key; None: if both servers support it."""

    async def obtain(
        self, web: Web, place: AuthServer, scopes: tuple[str, ...], key: ProofKey | None
    ) -> Token:
        """Request a token."""
        ...

    async def refresh(
        self, web: Web, place: AuthServer, token: Token, key: ProofKey | None
    ) -> Token:
        """Exchange the refresh token of an old token for a new one."""
        ...


class TokenSource(Enum):
    """Where a token came from."""

    STORE = auto()
    REFRESH = auto()
    GRANT = auto()


class AuthSession:
    """The `Authorizer` of one server."""

    def __init__(self, url: str, grant: Grant, storage: Storage, web: Web) -> None:
        self._url = url
        self._name = bare(url)
        self._grant = grant
        self._storage = storage
        self._web = web
        self._token: Token | None = None
        self._source = TokenSource.STORE  # of the token
        self._let_in = False  # whether the server has accepted the token
        self._shown: list[Header] = []  # the header of a token that needs no proof
        self._key: ProofKey | None = None
        self._looked = False  # whether the store has been read
        self._place: AuthServer | None = None  # as found last
        self._work: asyncio.Task[None] | None = None
        self._waiting = 0  # requests waiting for the work

    # Called by the transport

    def headers(self, method: str, url: str) -> list[Header] | Awaitable[list[Header]]:
        """Return the headers that present the token, with a proof for this request if needed.

        Args:
            method: The HTTP method of the request.
            url: The URL of the request.
        """
        token = self._token
        if token is None:
            return [] if self._looked else self._when_renewed(method, url)
        if token.over and (token.refresh_token is not None or self._grant.silent):
            return self._when_renewed(method, url)
        return self._show(token, method, url)

    def _show(self, token: Token, method: str, url: str) -> list[Header]:
        if not token.bound:
            return self._shown
        assert self._key is not None
        authorization = ("Authorization", f"DPoP {token.access_token}")
        return [authorization, self._key.proof(method, url, token.access_token)]

    async def _when_renewed(self, method: str, url: str) -> list[Header]:
        await self._together(self._renew)
        token = self._token
        return [] if token is None else self._show(token, method, url)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Note that the server accepts the token, and its nonce for the next proof.

        Args:
            status: The HTTP status of the response.
            headers: The headers of the response.
        """
        if status != 401:
            self._let_in = True
        if self._key is not None:
            self._key.learn(self._url, headers)

    async def refused(self, refusal: Refusal) -> bool:
        """Get what the server demands. Return whether there is something new to present.

        Args:
            refusal: The response of the server.
        """
        if refusal.attempt > _MAX_ATTEMPTS:
            raise AuthorizationFailed(f"{self._name} refused one request {_MAX_ATTEMPTS} times")
        demand = read_demand(refusal.headers)
        if refusal.sent and demand.error == "use_dpop_nonce":
            return True  # `answered` has stored the nonce
        if not self._is_shown(refusal.sent):
            return True  # another request has got a token meanwhile
        if refusal.status == 401:
            await self._together(lambda: self._replace(demand))
        elif demand.error == "insufficient_scope":
            await self._together(lambda: self._extend(demand))
        else:
            return False
        return True

    def _is_shown(self, sent: Sequence[Header]) -> bool:
        """Return whether the refused token is the current one."""
        shown = dict(sent).get("Authorization", "").partition(" ")[2]
        return shown == ("" if self._token is None else self._token.access_token)

    # One task at a time

    async def _together(self, begin: Renewal) -> None:
        """Wait for the running task, or start it. It is cancelled once no request waits for it."""
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._do(begin))
        work = self._work
        self._waiting += 1
        try:
            await asyncio.shield(work)
        finally:
            self._waiting -= 1
            if work.done() or not self._waiting:
                self._work = None
                work.cancel()

    async def _do(self, work: Renewal) -> None:
        """Turn every unexpected exception into `AuthorizationFailed`, which fails the waiting calls."""
        try:
            await work()
        except McpearlError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise AuthorizationFailed(f"could not get a token for {self._name}: {said}") from error

    async def _renew(self) -> None:
        """Read the store, and refresh a token that has expired."""
        if not self._looked:
            await self._look()
        token = self._token
        if token is None or not token.over:
            return
        place = self._place or await self._find(Demand())
        async with self._storage.lock(_key(place)):
            if await self._take_newer(place) or await self._refresh(place):
                return
            if self._grant.silent:
                await self._obtain(place, token.requested)

    async def _replace(self, demand: Demand) -> None:
        """Replace a refused token, or get the first one."""
        refused, source = self._token, self._source
        if refused is not None and source is TokenSource.GRANT and not self._let_in:
            raise AuthorizationFailed(
                f"{self._name} refuses the token that {refused.issuer} has just issued for it"
            )
        may_refresh = self._let_in or source is not TokenSource.REFRESH
        place = await self._find(demand)
        async with self._storage.lock(_key(place)):
            if await self._take_newer(place):
                return
            before = self._requested(place)
            if not (may_refresh and await self._refresh(place)):
                await self._obtain(place, self._wanted(place, demand, before))

    async def _extend(self, demand: Demand) -> None:
        """Get a token with more scopes than the refused one."""
        place = await self._find(demand)
        before = self._requested(place)
        missing = [scope for scope in demand.scopes if scope not in before]
        if not missing:
            wanted = " ".join(demand.scopes) or "more than was granted"
            raise AuthorizationFailed(
                f"{self._name} demands the scopes {wanted!r:.200}, which were already requested; "
                "the authorization server or its user does not grant them"
            )
        logger.info("%s demands more scopes: %s", self._name, " ".join(missing))
        async with self._storage.lock(_key(place)):
            await self._obtain(place, self._wanted(place, demand, before))

    def _requested(self, place: AuthServer) -> tuple[str, ...]:
        """Return the scopes that were requested from this authorization server before."""
        token = self._token
        same = token is not None and token.issuer == place.server.issuer
        return token.requested if token is not None and same else ()

    def _wanted(
        self, place: AuthServer, demand: Demand, before: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the scopes to request: the challenge's, else the settings', else the metadata's."""
        wanted = [*before, *demand.scopes, *self._grant.scopes]
        return tuple(dict.fromkeys(wanted or place.scopes))

    # Getting tokens

    async def _find(self, demand: Demand) -> AuthServer:
        known = await self._storage.load(Key("", self._url)) or {}
        issuer = self._grant.issuer
        if issuer is None and not self._grant.portable:
            issuer = known.get("issuer")
        preferred = [str(known["issuer"])] if "issuer" in known else []
        self._place = await find_place(self._web, self._name, demand, issuer, preferred)
        return self._place

    async def _obtain(self, place: AuthServer, scopes: tuple[str, ...]) -> None:
        dpop = place.dpop if self._grant.dpop is None else self._grant.dpop
        if dpop and not place.server.dpop_signing_alg_values_supported:
            raise AuthorizationFailed(f"{place.server.issuer} cannot bind tokens to a key (DPoP)")
        key = (self._key or ProofKey()) if dpop else None
        token = await self._grant.obtain(self._web, place, scopes, key)
        if self._grant.dpop and not token.bound:
            raise AuthorizationFailed(f"{place.server.issuer} issued a token that is not bound")
        await self._keep(token, key, TokenSource.GRANT)

    async def _refresh(self, place: AuthServer) -> bool:
        """Refresh the token. Return False if that is not possible, or no longer."""
        token = self._token
        if token is None or token.refresh_token is None or token.issuer != place.server.issuer:
            return False
        try:
            renewed = await self._grant.refresh(self._web, place, token, self._key)
        except GrantRefused as error:
            logger.info("%s did not refresh the token: %s", token.issuer, error.error)
            await self._storage.delete(_key(place))
            self._token, self._shown = None, []
            return False
        rotated = renewed.refresh_token or token.refresh_token
        renewed = msgspec.structs.replace(renewed, refresh_token=rotated)
        await self._keep(renewed, self._key, TokenSource.REFRESH)
        return True

    # Storing tokens

    async def _keep(self, token: Token, key: ProofKey | None, source: TokenSource) -> None:
        if key is not None:
            token = msgspec.structs.replace(token, key=key.private())
        self._hold(token, key, source)
        await self._storage.save(Key(token.issuer, token.resource), msgspec.to_builtins(token))
        whose = {"issuer": token.issuer, "resource": token.resource}
        await self._storage.save(Key("", self._url), whose)

    def _hold(self, token: Token, key: ProofKey | None, source: TokenSource) -> None:
        self._token, self._key, self._source, self._let_in = token, key, source, False
        self._shown = [("Authorization", f"Bearer {token.access_token}")]

    async def _look(self) -> None:
        """Load the token of an earlier run, without fetching any metadata."""
        self._looked = True
        known = await self._storage.load(Key("", self._url))
        if known is not None and self._grant.issuer in (None, known.get("issuer")):
            key = Key(str(known.get("issuer")), str(known.get("resource")))
            self._take(await self._storage.load(key))

    async def _take_newer(self, place: AuthServer) -> bool:
        """Load a token that another process has stored. Return whether it can be used."""
        return self._take(await self._storage.load(_key(place)))

    def _take(self, record: Mapping[str, Any] | None) -> bool:
        try:
            token = None if record is None else msgspec.convert(record, Token)
        except msgspec.ValidationError:
            logger.warning("ignored a stored token for %s that cannot be read", self._name)
            return False
        current = None if self._token is None else self._token.access_token
        if token is None or token.access_token == current:
            return False
        self._hold(token, None if token.key is None else ProofKey(token.key), TokenSource.STORE)
        return not token.over


def _key(place: AuthServer) -> Key:
    return Key(place.server.issuer, place.resource)
