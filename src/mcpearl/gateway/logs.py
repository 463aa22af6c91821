"""Log messages of upstreams on their way to clients.

They are sent when they arrive, before anything that arrives later: the answer to the call they belong to
must not overtake them. In a session that belongs to one client all of them are that client's. On a
connection that clients share, a message belongs to the call on whose stream it came, over HTTP. Other
wires have one stream for all calls, and nothing in a message says which call it is about: it is passed on
only while it can be about one client alone, and dropped otherwise.
"""

import logging
from collections.abc import Hashable

from mcpearl.gateway.sent import SentRequest
from mcpearl.gateway.tenants import client_of
from mcpearl.protocol.events import Call, Caller
from mcpearl.protocol.pending import PendingRequest
from mcpearl.server.call_end import send_notification
from mcpearl.server.context import Context, call_of
from mcpearl.server.peer import LEVELS, wants_log
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


class LoggedCall(SentRequest):
    """A call on a shared connection: what is known of it, to find the client of a log message."""

    __slots__ = ("_logs", "ctx", "order")

    def __init__(self, logs: "SharedLogs", ctx: Context) -> None:
        super().__init__()
        self._logs = logs
        self.ctx = ctx
        self.order = 0  # among the calls that were sent

    def began(self, request: PendingRequest) -> None:
        """Note the id under which the upstream knows the call, and its order among the others."""
        self._logs.sent(self, request)


class SharedLogs:
    """The calls on a connection that clients share, as far as log messages may be about them."""

    def __init__(self) -> None:
        self._calls: dict[Context, Hashable] = {}  # each with a key for its client
        self._requests: dict[RequestId, Context] = {}  # by the id that the upstream knows
        self._sent = 0  # how many calls
        self._principals: set[Hashable] = set()  # that have used the connection; two are enough
        self._unanswered: list[tuple[Hashable, int]] = []  # clients of such calls; two are enough
        self.level: str | None = None
        """The lowest level that a client asked for; an upstream with sessions is asked for this one."""

    def lower(self, level: str) -> bool:
        """Note a level that a client asks for; return whether it is the lowest so far."""
        if self.level is not None and LEVELS[level] >= LEVELS[self.level]:
            return False
        self.level = level
        return True

    def connected(self) -> None:
        """Note that the connection is a new one: nothing of earlier calls arrives on it."""
        self._principals.clear()
        self._unanswered.clear()

    def enter(self, call: Call, ctx: Context) -> LoggedCall:
        """Note a call that log messages may be about."""
        client = _principal_of(call)
        if client is None:
            client = client_of(call, ctx)
        self._calls[ctx] = ctx if client is None else client
        return LoggedCall(self, ctx)

    def sent(self, logged: LoggedCall, request: PendingRequest) -> None:
        """Note the request that was sent for a call, and its order among the calls."""
        if logged.id is not None:  # it did not leave on an earlier connection
            self._requests.pop(logged.id, None)
        self._sent += 1
        logged.id, logged.order = request.id, self._sent
        self._requests[request.id] = logged.ctx

    def leave(self, logged: LoggedCall) -> None:
        """Forget a call that has ended.

        Messages about a call arrive before its answer. A call that was sent and not answered, as after a
        cancellation, may go on logging until the upstream has answered a call that was sent later: until
        then its client counts. A client with a principal counts as long as the connection lasts: not
        even an upstream that logs after its answer shows that to another principal.
        """
        ctx, id = logged.ctx, logged.id
        client = self._calls.pop(ctx)
        if id is None:
            return
        if self._requests.get(id) is ctx:
            del self._requests[id]
        if _principal_of(call_of(ctx)) is not None:
            if len(self._principals) < 2:
                self._principals.add(client)
        elif not logged.answered:
            self._unanswered = [*self._unanswered[-1:], (client, self._sent)]
        if logged.answered:
            self._unanswered = [each for each in self._unanswered if each[1] >= logged.order]

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
        elif self._calls and len(self._clients()) == 1:
            say(next(reversed(self._calls)), params)
        elif self._calls:
            logger.debug("a log message may be about any of several clients; it is dropped")

    def _clients(self) -> set[Hashable]:
        """Return the clients that a message may be about, as far as is known; two are enough."""
        gone = {client for client, _ in self._unanswered}
        return gone.union(self._principals, self._calls.values())


def _principal_of(call: Call) -> Hashable:
    """Return who made a call, if that is known."""
    principal = call.caller.principal
    return principal.identity if principal is not None and principal.subject else None
