"""Subscriptions to resources on the connection that clients share.

One subscription at the upstream serves all clients that follow a resource. The upstream does not learn
which clients follow it. A subscription that no client needs any more ends when its resource changes, or
when others are added.
"""

import asyncio
import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING

from msgspec import Struct

from mcpearl.gateway.shares import Shares
from mcpearl.protocol.errors import LimitReached, McpearlError, McpError
from mcpearl.runtime import clock
from mcpearl.runtime.eager import spawn
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream
    from mcpearl.gateway.upstream_client import UpstreamClient

logger = logging.getLogger("mcpearl.gateway")
_FEWEST = 64  # subscriptions before they are first searched for ones that no client needs
_BETWEEN_LOOKS = 1.0  # seconds between two searches while the limit is reached
_BEGINNING = 30.0  # seconds that a client may take to follow a resource after asking for it


class _FollowedResource(Struct, eq=False):
    owner: Hashable
    """The client to whose share it counts: the first that asked for it."""
    asked: float
    """When a client last asked for it."""


class SharedSubscriptions:
    """The subscriptions of the shared connection to one upstream.

    Args:
        upstream: The upstream.
    """

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._client: UpstreamClient | None = None  # the one that has these subscriptions
        self._followed: dict[str, _FollowedResource] = {}
        self._look_at = _FEWEST  # the number at which they are searched next
        self._looked = 0.0  # when that was done last
        limit = upstream.settings.max_subscriptions
        taken = f"{limit} resources of `{upstream.name}` are subscribed to already"
        self._places = Shares(limit, taken, "UpstreamSettings.max_subscriptions")

    def __len__(self) -> int:
        return len(self._followed)

    async def follow(self, uri: str, owner: Hashable) -> None:
        """Subscribe to changes of a resource, unless that is done already.

        Args:
            uri: The resource.
            owner: The client that asks, see `owner_of`.

        Raises:
            McpError: The upstream refused, or there are too many subscriptions.
        """
        known = self._followed.get(uri)
        if known is not None:
            known.asked = clock.monotonic()
            return
        self._take(owner)
        try:
            await self._subscribe(uri)
        except BaseException:
            self._places.give_back(owner)
            raise
        if uri in self._followed:  # another client asked for it meanwhile
            self._places.give_back(owner)
        else:
            self._followed[uri] = _FollowedResource(owner, clock.monotonic())

    def _take(self, owner: Hashable) -> None:
        """Take a place for a subscription; end subscriptions that no client needs, if that is due."""
        if len(self._followed) >= self._look_at:
            self._look_through()
        try:
            self._places.take(owner)
        except LimitReached as error:
            if clock.monotonic() - self._looked < _BETWEEN_LOOKS:
                raise McpError(INTERNAL_ERROR, str(error)) from None
            self._look_through()
            self._take(owner)

    async def _subscribe(self, uri: str) -> None:
        try:
            client = await self._upstream.shared()
            await client.subscribe(uri)
        except McpError:
            raise
        except McpearlError as error:
            raise McpError(INTERNAL_ERROR, f"`{self._upstream.name}`: {error}") from None

    def reconnected(self, client: "UpstreamClient") -> None:
        """Subscribe again if there is a new client; the same client restores its subscriptions itself.

        Args:
            client: The client of the shared connection.
        """
        if client is not self._client:
            self._client = client
            if self._followed:
                spawn(asyncio.get_running_loop(), self._restore())

    async def _restore(self) -> None:
        for uri in list(self._followed):
            try:
                await self._subscribe(uri)
            except McpError as error:
                logger.warning("the subscription to %s is dropped: %s", uri, error)
                if uri in self._followed:
                    self._places.give_back(self._followed.pop(uri).owner)

    def updated(self, uri: str) -> None:
        """Note that a resource changed; end its subscription if no client follows it any more."""
        if uri in self._followed and self._is_unheard(uri):
            self._let_go(uri)

    def _look_through(self) -> None:
        for uri in [uri for uri in self._followed if self._is_unheard(uri)]:
            self._let_go(uri)
        self._look_at = max(_FEWEST, 2 * len(self._followed))
        self._looked = clock.monotonic()

    def _is_unheard(self, uri: str) -> bool:
        if clock.monotonic() - self._followed[uri].asked < _BEGINNING:
            return False
        return not self._upstream.is_followed(uri)

    def _let_go(self, uri: str) -> None:
        self._places.give_back(self._followed.pop(uri).owner)
        spawn(asyncio.get_running_loop(), self._unsubscribe(uri))

    async def _unsubscribe(self, uri: str) -> None:
        try:
            client = await self._upstream.shared()
            await client.unsubscribe(uri)
        except McpearlError as error:
            logger.debug("`%s`: unsubscribing from %s: %s", self._upstream.name, uri, error)
