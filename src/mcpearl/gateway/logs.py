"""Log messages of upstreams on their way to clients.

They are sent when they arrive, before anything that arrives later: the answer to the call they belong to
must not overtake them.
"""

from mcpearl.server.context import Context, call_of
from mcpearl.server.peer import send_notification, wants_log
from mcpearl.types.logging import LoggingMessageNotificationParams

MAX_LOGGED = 10_000
"""Log messages of one call that are passed on; an upstream that floods costs its caller no more."""


def say(ctx: Context, params: LoggingMessageNotificationParams) -> None:
    """Send a log message to the client of a call, if it wants messages of this level."""
    call = call_of(ctx)
    if ctx.cancelled or not wants_log(call.caller, params.level):
        return
    said = ctx.state.get("mcpearl.said", 0)
    if said < MAX_LOGGED:
        ctx.state["mcpearl.said"] = said + 1
        send_notification(call, "notifications/message", params)
