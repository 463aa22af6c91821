"""The modern subscriptions of one connection: each is a `subscriptions/listen` that stays open.

Its call runs only until it is acknowledged. From then on nothing runs for it; it is answered when the
connection, its token or the server ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mcpearl import types
from mcpearl.protocol import codec
from mcpearl.protocol.errors import LimitReached, McpError
from mcpearl.protocol.events import Call
from mcpearl.protocol.modern import subscription_meta
from mcpearl.runtime.budget import Account, NoRoom
from mcpearl.server.context import Context
from mcpearl.server.core import ServerCore
from mcpearl.server.peer import Peer
from mcpearl.server.subscriptions import Subscriber, followed, granted
from mcpearl.types.base import Result, encode
from mcpearl.types.jsonrpc import INTERNAL_ERROR

logger = logging.getLogger("mcpearl.server")


class ListenStreams:
    """The listening calls of one connection, by their key. The server owns the index of URIs.

    Args:
        core: What the server's connections share.
        peer: The other end of the calls.
        held: Returns how many resources the client follows besides these streams.
        answer: Answers a call that ends.
        account_of: Returns the account of a call's client.
    """

    __slots__ = ("_account_of", "_answer", "_core", "_ends", "_held", "_open", "_peer")

    def __init__(
        self,
        core: ServerCore,
        peer: Peer,
        held: Callable[[], int],
        answer: Callable[[Call, Result | McpError], object],
        account_of: Callable[[Call], Account],
    ) -> None:
        self._core = core
        self._account_of = account_of
        self._peer = peer
        self._held = held
        self._answer = answer
        self._open: dict[object, Subscriber] = {}
        self._ends: dict[object, asyncio.TimerHandle] = {}  # of calls whose token expires

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, call: Call) -> None:
        """Acknowledge a subscription, then notify it until its token expires."""
        try:
            await self._acknowledge(call)
        except McpError as error:
            self._answer(call, error)
            return
        except LimitReached as error:
            self._core.refused("Limits.max_subscriptions", str(error))
            self._answer(call, McpError(INTERNAL_ERROR, str(error)))
            return
        except NoRoom as error:
            self._answer(call, McpError(INTERNAL_ERROR, str(error)))
            return
        principal = call.caller.principal
        left = None if principal is None else principal.time_left
        if left is not None and call.key in self._open:
            self._ends[call.key] = self._peer.loop.call_later(left, self._end, call)

    async def _acknowledge(self, call: Call) -> None:
        core = self._core
        honoured = granted(call.params.notifications, core.offer.has)
        if honoured.resource_subscriptions is not None:
            uris = await self._agreed(honoured.resource_subscriptions, call)
            honoured.resource_subscriptions = uris
        wanted = call.params.notifications.task_ids
        if wanted and core.tasks is not None:
            self.reserve(len(wanted))
            honoured.task_ids = await core.tasks.agree(wanted, call)
        subscriber = Subscriber(call.outlet, self._account_of(call), call)
        try:
            for uri in honoured.resource_subscriptions or ():
                core.subscriptions.subscribe(subscriber, uri)
        except NoRoom:
            core.subscriptions.leave(subscriber)
            raise
        for kind in followed(honoured):
            core.subscriptions.follow(subscriber, kind)
        self._open[call.key] = subscriber  # before anything is sent, which may end it
        acknowledged = types.SubscriptionsAcknowledgedNotificationParams(
            notifications=honoured, meta=subscription_meta(call.id)
        )
        call.outlet.send(
            codec.encode_notification(
                "notifications/subscriptions/acknowledged", encode(acknowledged)
            )
        )
        if core.tasks is not None and honoured.task_ids and call.key in self._open:
            core.tasks.follow(subscriber, honoured.task_ids, call)

    def _drop(self, listener: Subscriber) -> None:
        self._core.subscriptions.leave(listener)
        if self._core.tasks is not None:
            self._core.tasks.leave(listener)

    async def _agreed(self, uris: list[str], call: Call) -> list[str]:
        """Return the resources the dispatcher lets this caller follow."""
        self.reserve(len(uris))
        ctx = Context(call, self._peer, self._core)
        agreed = []
        for uri in dict.fromkeys(uris):
            try:
                await self._core.dispatcher.follow(uri, ctx)
            except McpError as error:
                logger.debug("no subscription to %s: %s", uri, error)
            except Exception as error:
                logger.error("subscribing to %s raised", uri, exc_info=error)
            else:
                agreed.append(uri)
        self.reserve(len(agreed))  # other subscriptions may have been made meanwhile
        return agreed

    @property
    def uris(self) -> int:
        """How many resources these streams follow."""
        return sum(len(listener.uris) for listener in self._open.values())

    def reserve(self, count: int) -> None:
        """Refuse more subscriptions than one client may have; raises `LimitReached`."""
        check_room(self._core.limits.max_subscriptions, self._held(), count)

    def _end(self, call: Call) -> None:
        self.leave(call)
        self._answer(call, _heard(call))

    def leave(self, call: Call) -> None:
        """Forget the stream of a call, if the call has one."""
        listener = self._open.pop(call.key, None)
        if listener is not None:
            self._drop(listener)
        end = self._ends.pop(call.key, None)
        if end is not None:
            end.cancel()

    def end_all(self) -> None:
        """End every subscription in order, with its result."""
        calls = [listener.call for listener in self._open.values() if listener.call is not None]
        self.clear()
        for call in calls:
            self._answer(call, _heard(call))

    def clear(self) -> None:
        """Forget all streams without answering: the client is gone."""
        for listener in self._open.values():
            self._drop(listener)
        self._open.clear()
        for end in self._ends.values():
            end.cancel()
        self._ends.clear()


def check_room(limit: int, held: int, count: int) -> None:
    """Raise `LimitReached` if a client may not subscribe to `count` more resources.

    Args:
        limit: How many it may have.
        held: How many it has.
        count: How many it asks for.
    """
    if held + count > limit:
        raise LimitReached(
            f"{held} resources are subscribed to already, and the limit is {limit}: "
            "see `Limits.max_subscriptions`"
        )


def _heard(call: Call) -> types.SubscriptionsListenResult:
    return types.SubscriptionsListenResult(meta=dict(subscription_meta(call.id)))
