"""Being logged in to one server: shows the token, renews it, and gets another when it is refused.

All that wait for a token wait for one piece of work, and whoever shares the store is kept out
meanwhile. Where a token comes from, and what a 401 on it leads to:

    none                          ──▶ granted
    stored, or once let in        ──▶ refreshed, or else granted
    refreshed and never let in    ──▶ granted
    granted and never let in      ──▶ failure: the two servers do not agree

A 403 that asks for scopes never asked for leads to a grant with them too, any other to failure. How a
token is granted is a `Grant`'s business: a person in a browser, or a secret of this program.
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

_MAX_ATTEMPTS = 5  # of one request: renewed, granted anew, more scopes, and a nonce between

Work = Callable[[], Coroutine[Any, Any, None]]


class Grant(Protocol):
    """On what grounds tokens are given."""

    issuer: str | None
    """The only authorization server these grounds are good for, if that is known."""
    portable: bool
    """Whether they are good for any; else the first one met is the only one from then on."""
    silent: bool
    """Whether nobody is bothered by getting a token."""
    scopes: tuple[str, ...]
    """What to ask for in any case."""
    dpop: bool | None
    """Whether tokens have to be bound to a key; None for when both servers can do with it."""

    async def obtain(
        self, web: Web, place: AuthServer, scopes: tuple[str, ...], key: ProofKey | None
    ) -> Token:
        """Get a token."""
        ...

    async def refresh(
        self, web: Web, place: AuthServer, token: Token, key: ProofKey | None
    ) -> Token:
        """Get another token for an old one's refresh token."""
        ...


class Source(Enum):
    """Where a token came from."""

    STORE = auto()
    REFRESH = auto()
    GRANT = auto()


class Session:
    """The `Authorizer` of one server."""

    def __init__(self, url: str, grant: Grant, storage: Storage, web: Web) -> None:
        self._url = url
        self._name = bare(url)
        self._grant = grant
        self._storage = storage
        self._web = web
        self._token: Token | None = None
        self._source = Source.STORE  # of the token
        self._let_in = False  # whether the server has taken the token
        self._shown: list[Header] = []  # what a token that needs no proof is shown with
        self._key: ProofKey | None = None
        self._looked = False  # into the store
        self._place: AuthServer | None = None  # as last found
        self._work: asyncio.Task[None] | None = None
        self._waiting = 0  # for the work

    # What the transport asks

    def headers(self, method: str, url: str) -> list[Header] | Awaitable[list[Header]]:
        """Show the token, with a proof for this request if it needs one."""
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
        """Note that the server lets the token in, and the nonce it gives for the next proof."""
        if status != 401:
            self._let_in = True
        if self._key is not None:
            self._key.learn(self._url, headers)

    async def refused(self, refusal: Refusal) -> bool:
        """Get what the server wants, if that can be had; whether there is something new to show."""
        if refusal.attempt > _MAX_ATTEMPTS:
            raise AuthorizationFailed(f"{self._name} refused one request {_MAX_ATTEMPTS} times")
        demand = read_demand(refusal.headers)
        if refusal.sent and demand.error == "use_dpop_nonce":
            return True  # `answered` has it by now
        if not self._is_shown(refusal.sent):
            return True  # meanwhile somebody else got a token
        if refusal.status == 401:
            await self._together(lambda: self._replace(demand))
        elif demand.error == "insufficient_scope":
            await self._together(lambda: self._extend(demand))
        else:
            return False
        return True

    def _is_shown(self, sent: Sequence[Header]) -> bool:
        """Whether what was refused is what would be shown now."""
        shown = dict(sent).get("Authorization", "").partition(" ")[2]
        return shown == ("" if self._token is None else self._token.access_token)

    # One piece of work at a time

    async def _together(self, begin: Work) -> None:
        """Wait for what is under way, or begin it. It ends early only when nobody waits any more."""
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

    async def _do(self, work: Work) -> None:
        """Let everything that goes wrong be a failure to authorize: what was given is at fault."""
        try:
            await work()
        except McpearlError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise AuthorizationFailed(f"no token for {self._name} could be had: {said}") from error

    async def _renew(self) -> None:
        """Look into the store, and renew a token that is over."""
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
        """Get a token in the place of one that was refused, or the first."""
        refused, source = self._token, self._source
        if refused is not None and source is Source.GRANT and not self._let_in:
            raise AuthorizationFailed(
                f"{self._name} refuses the token that {refused.issuer} has just given for it"
            )
        may_refresh = self._let_in or source is not Source.REFRESH
        place = await self._find(demand)
        async with self._storage.lock(_key(place)):
            if await self._take_newer(place):
                return
            before = self._requested(place)
            if not (may_refresh and await self._refresh(place)):
                await self._obtain(place, self._wanted(place, demand, before))

    async def _extend(self, demand: Demand) -> None:
        """Get a token with more scopes than the one that was refused."""
        place = await self._find(demand)
        before = self._requested(place)
        missing = [scope for scope in demand.scopes if scope not in before]
        if not missing:
            wanted = " ".join(demand.scopes) or "more than was granted"
            raise AuthorizationFailed(
                f"{self._name} wants the scopes {wanted!r:.200}, which were asked for already; "
                "the authorization server or its user does not grant them"
            )
        logger.info("%s wants more scopes: %s", self._name, " ".join(missing))
        async with self._storage.lock(_key(place)):
            await self._obtain(place, self._wanted(place, demand, before))

    def _requested(self, place: AuthServer) -> tuple[str, ...]:
        """Give what was asked of this authorization server before."""
        token = self._token
        same = token is not None and token.issuer == place.server.issuer
        return token.requested if token is not None and same else ()

    def _wanted(
        self, place: AuthServer, demand: Demand, before: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Choose the scopes: the challenge's, else the settings', else all the server names."""
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
            raise AuthorizationFailed(f"{place.server.issuer} gave a token that is not bound")
        await self._keep(token, key, Source.GRANT)

    async def _refresh(self, place: AuthServer) -> bool:
        """Renew the token; False when that cannot be done, or no longer."""
        token = self._token
        if token is None or token.refresh_token is None or token.issuer != place.server.issuer:
            return False
        try:
            renewed = await self._grant.refresh(self._web, place, token, self._key)
        except GrantRefused as error:
            logger.info("%s does not renew the token: %s", token.issuer, error.error)
            await self._storage.delete(_key(place))
            self._token, self._shown = None, []
            return False
        rotated = renewed.refresh_token or token.refresh_token
        renewed = msgspec.structs.replace(renewed, refresh_token=rotated)
        await self._keep(renewed, self._key, Source.REFRESH)
        return True

    # Keeping them

    async def _keep(self, token: Token, key: ProofKey | None, source: Source) -> None:
        if key is not None:
            token = msgspec.structs.replace(token, key=key.private())
        self._hold(token, key, source)
        await self._storage.save(Key(token.issuer, token.resource), msgspec.to_builtins(token))
        whose = {"issuer": token.issuer, "resource": token.resource}
        await self._storage.save(Key("", self._url), whose)

    def _hold(self, token: Token, key: ProofKey | None, source: Source) -> None:
        self._token, self._key, self._source, self._let_in = token, key, source, False
        self._shown = [("Authorization", f"Bearer {token.access_token}")]

    async def _look(self) -> None:
        """Take up what an earlier session left, without asking anybody where it came from."""
        self._looked = True
        known = await self._storage.load(Key("", self._url))
        if known is not None and self._grant.issuer in (None, known.get("issuer")):
            key = Key(str(known.get("issuer")), str(known.get("resource")))
            self._take(await self._storage.load(key))

    async def _take_newer(self, place: AuthServer) -> bool:
        """Take what somebody else has put into the store meanwhile; whether it can be shown."""
        return self._take(await self._storage.load(_key(place)))

    def _take(self, record: Mapping[str, Any] | None) -> bool:
        try:
            token = None if record is None else msgspec.convert(record, Token)
        except msgspec.ValidationError:
            logger.warning("a stored token for %s cannot be read, and is passed over", self._name)
            return False
        current = None if self._token is None else self._token.access_token
        if token is None or token.access_token == current:
            return False
        self._hold(token, None if token.key is None else ProofKey(token.key), Source.STORE)
        return not token.over


def _key(place: AuthServer) -> Key:
    return Key(place.server.issuer, place.resource)
