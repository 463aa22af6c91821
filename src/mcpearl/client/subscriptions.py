"""A client's subscriptions: to resources by URI, in either era, and to streams of changes.

After a reconnect they are made again on the new connection, in the way of the era that the server
then turns out to belong to.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mcpearl.client.connection import ClientConnection
from mcpearl.client.link import Link
from mcpearl.client.subscription import Subscription
from mcpearl.protocol.errors import ConnectionLost, McpearlError
from mcpearl.runtime.tree import Node
from mcpearl.types.base import EmptyResult
from mcpearl.types.resources import SubscribeRequestParams
from mcpearl.types.subscriptions import SubscriptionFilter

logger = logging.getLogger("mcpearl.client")
_AT_ONCE = 100  # subscriptions being restored at the same time


class ClientSubscriptions:
    """All subscriptions of one client."""

    def __init__(self, link: Link, timeout: float) -> None:
        self._link = link
        self._timeout = timeout
        self._streams: set[Subscription] = set()
        self._uris: dict[str, Subscription | None] = {}  # each with its stream, in the modern era

    def __len__(self) -> int:
        return len(self._uris)

    def stream(self, wanted: SubscriptionFilter, *, read: bool = True) -> Subscription:
        """Return a stream of changes that is not open yet."""
        return Subscription(self._link, self._streams, wanted, self._timeout, read=read)

    def nodes(self) -> tuple[Node, ...]:
        """Return the state of each stream of changes, for the client's tree."""
        return tuple(
            Node(name=f"subscription {number}", state=stream.node_state, fleeting=True)
            for number, stream in enumerate(self._streams, 1)
        )

    # By URI

    def add(self, uri: str) -> None:
        """Note that a legacy session is subscribed to a resource."""
        self._uris[uri] = None

    async def follow(self, uri: str) -> None:
        """Open a stream for a resource of a modern server."""
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
        """End the subscription to a resource."""
        stream = self._uris.pop(uri, None)
        if stream is not None:
            stream.close()

    def _stream_of(self, uri: str) -> Subscription:
        return self.stream(SubscriptionFilter(resource_subscriptions=[uri]), read=False)

    # After a reconnect

    async def restore_in_session(self, connection: ClientConnection) -> None:
        """Subscribe in a new legacy session; end the streams that were open at a modern server."""
        await self._all(list(self._uris), lambda uri: self._subscribe_on(connection, uri))
        await self._open_all_on(connection)

    async def restore_streams(self, connection: ClientConnection) -> None:
        """Open all streams on a new connection to a modern server."""
        for uri, stream in self._uris.items():
            if stream is None or stream.ended:
                self._uris[uri] = stream = self._stream_of(uri)
                self._streams.add(stream)
        await self._open_all_on(connection)

    async def _open_all_on(self, connection: ClientConnection) -> None:
        await self._all(list(self._streams), lambda stream: self._open_on(connection, stream))

    async def _all(self, items: list[Any], restore: Callable[[Any], Awaitable[None]]) -> None:
        for start in range(0, len(items), _AT_ONCE):
            work = (restore(item) for item in items[start : start + _AT_ONCE])
            for outcome in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _subscribe_on(self, connection: ClientConnection, uri: str) -> None:
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
            logger.warning("the subscription to %s is dropped: %s", uri, error)
            self._uris.pop(uri, None)

    async def _open_on(self, connection: ClientConnection, stream: Subscription) -> None:
        try:
            await stream.open_on(connection, self._timeout)
        except ConnectionLost:
            raise
        except McpearlError as error:
            logger.warning("a subscription ended with its connection: %s", error)
            stream.fail(error)

    def end(self, lost: ConnectionLost) -> None:
        """End all subscriptions: there will be no other connection."""
        self._uris.clear()
        for stream in list(self._streams):
            stream.fail(lost)
