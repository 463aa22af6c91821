"""The modern subscriptions of one connection: each is a `subscriptions/listen` that stays open."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpearl.protocol import codec
from mcpearl.protocol.errors import LimitReached, McpError
from mcpearl.protocol.events import Call
from mcpearl.protocol.modern import subscription_meta
from mcpearl.server.context import Context
from mcpearl.server.subscriptions import Subscriber, followed, granted
from mcpearl.types.base import encode
from mcpearl.types.subscriptions import SubscriptionsAcknowledgedNotificationParams

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")


class ListenStreams:
    """Who listens, by the key of their call. The index of what they listen to is the server's."""

    __slots__ = ("_ends", "_open", "_server")

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._open: dict[object, Subscriber] = {}
        self._ends: dict[object, asyncio.TimerHandle] = {}  # of those whose token ends

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, call: Call, ctx: Context) -> None:
        """Acknowledge a subscription first, then let it hear."""
        honoured = granted(call.params.notifications, self._server.offer.has)
        if honoured.resource_subscriptions is not None:
            uris = await self._agreed(honoured.resource_subscriptions, ctx)
            honoured.resource_subscriptions = uris
        acknowledged = SubscriptionsAcknowledgedNotificationParams(
            notifications=honoured, meta=subscription_meta(call.id)
        )
        call.outlet.send(
            codec.encode_notification(
                "notifications/subscriptions/acknowledged", encode(acknowledged)
            )
        )
        subscriber = Subscriber(call.outlet, call)
        for uri in honoured.resource_subscriptions or ():
            self._server.subscriptions.subscribe(subscriber, uri)
        for kind in followed(honoured):
            self._server.subscriptions.follow(subscriber, kind)
        self._open[call.key] = subscriber

    async def _agreed(self, uris: list[str], ctx: Context) -> list[str]:
        """The resources the handler lets this caller follow."""
        ctx.connection.reserve(len(uris))
        agreed = []
        for uri in dict.fromkeys(uris):
            try:
                await self._server.handler.subscribe(uri, ctx)
            except McpError as error:
                logger.debug("no subscription to %s: %s", uri, error)
            except Exception as error:
                logger.error("subscribing to %s raised", uri, exc_info=error)
            else:
                agreed.append(uri)
        ctx.connection.reserve(len(agreed))  # others may have come in between
        return agreed

    @property
    def uris(self) -> int:
        """To how many resources they listen."""
        return sum(len(listener.uris) for listener in self._open.values())

    def reserve(self, count: int, held: int) -> None:
        """Refuse more than one client may have."""
        limit = self._server.limits.max_subscriptions
        if held + count > limit:
            raise LimitReached(
                f"{held} resources are subscribed to already, and the limit is {limit}: "
                "see `Limits.max_subscriptions`"
            )

    def end_in(self, seconds: float, call: Call, end: Callable[[Call], None]) -> None:
        """Have `end` called after a time, if the listener of a call is still there then."""
        if call.key in self._open:
            loop = asyncio.get_running_loop()
            self._ends[call.key] = loop.call_later(seconds, end, call)

    def leave(self, call: Call) -> None:
        """Forget the listener of a call, if it is one."""
        listener = self._open.pop(call.key, None)
        if listener is not None:
            self._server.subscriptions.leave(listener)
        end = self._ends.pop(call.key, None)
        if end is not None:
            end.cancel()

    def end_all(self) -> list[Call]:
        """Stop all from hearing; give their calls, which are still to be answered."""
        calls = [listener.call for listener in self._open.values() if listener.call is not None]
        self.clear()
        return calls

    def clear(self) -> None:
        """Forget all."""
        for listener in self._open.values():
            self._server.subscriptions.leave(listener)
        self._open.clear()
        for end in self._ends.values():
            end.cancel()
        self._ends.clear()
