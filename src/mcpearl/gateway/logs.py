"""Log messages of upstreams on their way to clients.

They are sent when they arrive, before anything that arrives later: the answer to the call they belong to
must not overtake them. In a session that belongs to one client all of them are that client's. On a
connection that clients share, a message belongs to the call on whose stream it came, over HTTP. Other
wires have one stream for all calls: a message is passed on while the calls there that want log messages
are those of one client, and dropped otherwise, since it may be about another one.
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
"""Log messages of one call that are passed on; an upstream that floods costs its caller no more."""


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
    """The calls on a connection that clients share, as far as their clients want log messages."""

    def __init__(self) -> None:
        self._calls: dict[Context, Hashable] = {}  # each with what tells its client from others
        self._requests: dict[RequestId, Context] = {}  # by the id that the upstream knows
        self.level: str | None = None
        """The lowest level that was asked for: what an upstream with sessions is told."""

    def lower(self, level: str) -> bool:
        """Note a level that is asked for; return whether none as low was asked for before."""
        if self.level is not None and LEVELS[level] >= LEVELS[self.level]:
            return False
        self.level = level
        return True

    def enter(self, call: Call, ctx: Context) -> None:
        """Note a call whose client wants log messages."""
        client = client_of(call, ctx)
        self._calls[ctx] = ctx if client is None else client

    def sent(self, id: RequestId, ctx: Context) -> None:
        """Note by which id the upstream knows the call."""
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
            id: The request on whose stream it came; None where all requests have one stream.
        """
        if id is not None:
            ctx = self._requests.get(id)
            if ctx is not None:
                say(ctx, params)
        elif len(set(self._calls.values())) == 1:
            say(next(reversed(self._calls)), params)
        elif self._calls:
            logger.debug("a log message may be of any of several clients; it is dropped")
