"""Log messages of upstreams on their way to clients.

They are sent when they arrive, before anything that arrives later, so that the answer to the call they
belong to does not overtake them. In a session that belongs to one client, all messages are for that
client. On a connection that clients share over HTTP, a message belongs to the call on whose stream it
came. Other transports have one stream for all calls: a message is passed on only if all calls there that
want log messages belong to one client, and dropped otherwise, since it may be about another client.
"""

import logging
from collections.abc import Hashable

from mcpearl.gateway.tenants import client_of
from mcpearl.protocol.events import Call, Caller
from mcpearl.server.context import Context, call_of
from mcpearl.server.peer import LEVELS, send_notification, wants_log
from mcpearl.types.base import RequestId
from mcpearl.types.logging import LoggingMessageNotificationParams

logger = logging.getLogger("mcpearl.gateway")
MAX_LOGGED = 10_000
"""The most log messages of one call that are passed on, in case an upstream floods its caller."""


def level_of(caller: Caller) -> str | None:
    """Return the level of log messages a caller wants; None for none."""
    if caller.version.modern:
        return caller.log_level
    return caller.log_level or "debug"


def say(ctx: Context, params: LoggingMessageNotificationParams) -> None:
    """Send a log message to the client of a call, if it wants messages of this level."""
    call = call_of(ctx)
    if ctx.cancelled or not wants_log(call.caller, params.level):
        return
    said = ctx.state.get("mcpearl.said", 0)
    if said < MAX_LOGGED:
        ctx.state["mcpearl.said"] = said + 1
        send_notification(call, "notifications/message", params)


class SharedLogs:
    """The calls on a connection that clients share, if their clients want log messages."""

    def __init__(self) -> None:
        self._calls: dict[Context, Hashable] = {}  # each with a key for its client
        self._requests: dict[RequestId, Context] = {}  # by the id that the upstream knows
        self.level: str | None = None
        """The lowest level that a client asked for; an upstream with sessions is asked for this one."""

    def lower(self, level: str) -> bool:
        """Note a level that a client asks for; return whether it is the lowest so far."""
        if self.level is not None and LEVELS[level] >= LEVELS[self.level]:
            return False
        self.level = level
        return True

    def enter(self, call: Call, ctx: Context) -> None:
        """Note a call whose client wants log messages."""
        client = client_of(call, ctx)
        self._calls[ctx] = ctx if client is None else client

    def sent(self, id: RequestId, ctx: Context) -> None:
        """Note the id under which the upstream knows the call."""
        self._requests[id] = ctx

    def leave(self, ctx: Context, id: RequestId | None) -> None:
        """Forget a call that was answered."""
        del self._calls[ctx]
        if id is not None and self._requests.get(id) is ctx:
            del self._requests[id]

    def heard(self, params: LoggingMessageNotificationParams, id: RequestId | None) -> None:
        """Pass on a message.

        Args:
            params: The message.
            id: The request on whose stream it came; None if all requests share one stream.
        """
        if id is not None:
            ctx = self._requests.get(id)
            if ctx is not None:
                say(ctx, params)
        elif len(set(self._calls.values())) == 1:
            say(next(reversed(self._calls)), params)
        elif self._calls:
            logger.debug("a log message may be of any of several clients; it is dropped")
