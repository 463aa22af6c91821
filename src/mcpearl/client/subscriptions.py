"""What a client follows: resources by URI, the same in both eras, and the streams it reads.

It owns what has to be there again after a reconnect. Each connection is told anew, in the way of
the era the server turns out to be of.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcpearl.client.subscription import Subscription
from mcpearl.protocol.errors import ConnectionLost, McpearlError
from mcpearl.types.base import EmptyResult
from mcpearl.types.resources import SubscribeRequestParams
from mcpearl.types.subscriptions import SubscriptionFilter

if TYPE_CHECKING:
    from mcpearl.client.connection import ClientConnection
    from mcpearl.client.link import Link

logger = logging.getLogger("mcpearl.client")
_AT_ONCE = 100  # subscriptions being restored at the same time


class Subscriptions:
    """All subscriptions of one client."""

    def __init__(self, link: "Link", timeout: float) -> None:
        self._link = link
        self._timeout = timeout
        self._streams: set[Subscription] = set()
        self._uris: dict[str, Subscription | None] = {}  # each with its stream, in the modern era

    def __len__(self) -> int:
        return len(self._uris)

    def stream(self, wanted: SubscriptionFilter, *, kept: bool = True) -> Subscription:
        """Give a stream of changes, not open yet."""
        return Subscription(self._link, self._streams, wanted, self._timeout, kept=kept)

    # By URI

    def add(self, uri: str) -> None:
        """Note that a legacy session follows a resource."""
        self._uris[uri] = None

    async def follow(self, uri: str) -> None:
        """Follow a resource of a modern server."""
        before = self._uris.get(uri)
        if before is not None and not before.ended:
            return
        self._uris[uri] = stream = self._stream_of(uri)
        try:
            await stream.open()
        except BaseException:
            if self._uris.get(uri) is stream:
                del self._uris[uri]
            raise

    def remove(self, uri: str) -> None:
        """No longer follow a resource."""
        stream = self._uris.pop(uri, None)
        if stream is not None:
            stream.close()

    def _stream_of(self, uri: str) -> Subscription:
        return self.stream(SubscriptionFilter(resource_subscriptions=[uri]), kept=False)

    # After a reconnect

    async def restore(self, connection: "ClientConnection") -> None:
        """Follow on this connection what was followed before. What is refused is let go, and logged."""
        if connection.end.version.modern:
            for uri, stream in self._uris.items():
                if stream is None or stream.ended:
                    self._uris[uri] = stream = self._stream_of(uri)
                    self._streams.add(stream)
        else:
            await self._all(list(self._uris), lambda uri: self._subscribe_on(connection, uri))
        await self._all(list(self._streams), lambda stream: self._open_on(connection, stream))

    async def _all(self, items: list[Any], restore: Callable[[Any], Awaitable[None]]) -> None:
        for start in range(0, len(items), _AT_ONCE):
            work = (restore(item) for item in items[start : start + _AT_ONCE])
            for outcome in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _subscribe_on(self, connection: "ClientConnection", uri: str) -> None:
        stream = self._uris[uri]
        if stream is not None:  # the server was a modern one before
            stream.close()
            self._uris[uri] = None
        try:
            await connection.request(
                "resources/subscribe",
                SubscribeRequestParams(uri=uri),
                EmptyResult,
                timeout=self._timeout,
            )
        except ConnectionLost:
            raise
        except McpearlError as error:
            logger.warning("%s is no longer followed: %s", uri, error)
            self._uris.pop(uri, None)

    async def _open_on(self, connection: "ClientConnection", stream: Subscription) -> None:
        try:
            await stream.open_on(connection)
        except ConnectionLost:
            raise
        except McpearlError as error:
            logger.warning("a subscription ended with its connection: %s", error)
            stream.fail(error)

    def end(self, lost: ConnectionLost) -> None:
        """End everything: there will be no connection any more."""
        self._uris.clear()
        for stream in list(self._streams):
            stream.fail(lost)
