"""What a client does differently in the two eras, as two strategies; the handshake decides on one.

In the legacy era, up to 2025-11-25, a session remembers what a client subscribed to and its log
level. In the modern era, from 2026-07-28 on, each request stands for itself, and changes arrive on
streams, each opened by a request.
"""

from typing import Protocol

from mcpearl.client.connection import ClientConnection
from mcpearl.client.link import Link
from mcpearl.client.requests import Requests
from mcpearl.client.subscription import Subscription, not_modern
from mcpearl.client.subscriptions import ClientSubscriptions
from mcpearl.types.base import EmptyResult, RequestParams, Result
from mcpearl.types.logging import LoggingLevel, SetLevelRequestParams
from mcpearl.types.resources import SubscribeRequestParams, UnsubscribeRequestParams
from mcpearl.types.subscriptions import SubscriptionFilter


class EraRules(Protocol):
    """What a client does in one of the eras."""

    async def restore(self, connection: ClientConnection, timeout: float) -> None:
        """Restore log level and subscriptions on a new connection."""
        ...

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource."""
        ...

    async def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        ...

    def listen(self, wanted: SubscriptionFilter) -> Subscription:
        """Return a stream of changes that is not open yet."""
        ...

    async def ping(self, timeout: float | None) -> None:
        """Return when the server has answered."""
        ...

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Choose which log messages the server sends."""
        ...

    def notify_roots_changed(self) -> None:
        """Announce that the roots changed, unless the server asks for them whenever it needs them."""
        ...


class LegacyEra:
    """The rules for a server that keeps a session."""

    def __init__(self, link: Link, requests: Requests, subscriptions: ClientSubscriptions) -> None:
        self._link = link
        self._requests = requests
        self._subscriptions = subscriptions

    async def restore(self, connection: ClientConnection, timeout: float) -> None:
        """Set the log level of the new session, and subscribe as in the last one."""
        level = self._link.log_level
        if level is not None and "logging" in self._link.offered:
            params = SetLevelRequestParams(level=level)
            await connection.request("logging/setLevel", params, EmptyResult, timeout=timeout)
        await self._subscriptions.restore_in_session(connection)

    async def subscribe(self, uri: str) -> None:
        """Subscribe in the session."""
        params = SubscribeRequestParams(uri=uri)
        await self._requests.ask("resources/subscribe", params, EmptyResult)
        self._subscriptions.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        """End a subscription of the session."""
        self._subscriptions.remove(uri)
        params = UnsubscribeRequestParams(uri=uri)
        await self._requests.ask("resources/unsubscribe", params, EmptyResult)

    def listen(self, wanted: SubscriptionFilter) -> Subscription:
        """Refuse: a session has no such streams."""
        raise not_modern(self._link.introduced().version.name)

    async def ping(self, timeout: float | None) -> None:
        """Send a ping."""
        await self._requests.ask("ping", RequestParams(), Result, timeout)

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Set the level of this session, and of later ones."""
        params = SetLevelRequestParams(level=level)
        await self._requests.ask("logging/setLevel", params, EmptyResult)
        self._link.set_log_level(level)

    def notify_roots_changed(self) -> None:
        """Send the notification. Without a connection none is needed: a new session asks anyway."""
        if self._link.connection is not None:
            self._link.connection.notify("notifications/roots/list_changed")


class ModernEra:
    """The rules for a server without sessions: each request says what the server has to know."""

    def __init__(self, link: Link, requests: Requests, subscriptions: ClientSubscriptions) -> None:
        self._link = link
        self._requests = requests
        self._subscriptions = subscriptions

    async def restore(self, connection: ClientConnection, timeout: float) -> None:
        """Open the streams again; the log level is part of every request."""
        await self._subscriptions.restore_streams(connection)

    async def subscribe(self, uri: str) -> None:
        """Open a stream for the resource."""
        await self._subscriptions.follow(uri)

    async def unsubscribe(self, uri: str) -> None:
        """End the stream of the resource."""
        self._subscriptions.remove(uri)

    def listen(self, wanted: SubscriptionFilter) -> Subscription:
        """Return a stream for everything wanted."""
        return self._subscriptions.stream(wanted)

    async def ping(self, timeout: float | None) -> None:
        """Send `server/discover`, since the modern era has no ping."""
        await self._requests.ask("server/discover", RequestParams(), Result, timeout)

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Send the level with every request from now on."""
        self._link.set_log_level(level)

    def notify_roots_changed(self) -> None:
        """Do nothing: the server asks whenever it needs the roots."""
