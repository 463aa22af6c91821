"""Reports which call holds up the server: an `async def` that computes, or waits without `await`."""

import asyncio
import logging
import traceback
from collections.abc import Callable
from types import FrameType

from mcpearl.runtime.watchdog import Watchdog

logger = logging.getLogger("mcpearl.server")

_FRAMES = 12  # of the stack, the innermost ones


class BlockingWatch:
    """Watches the loop of a server while it runs; a service for the tree.

    Args:
        patience: Seconds for which a call may hold up all others before it is logged.
        blocked: Called on the loop with what held it up, and for how many seconds.
    """

    def __init__(self, patience: float, blocked: Callable[[str, float], None]) -> None:
        self._patience = patience
        self._blocked = blocked
        self._loop = asyncio.get_running_loop()
        self._what = ""  # the call that holds up the loop
        watchdog = Watchdog(patience, self._held_up, self._went_on)
        self.start = watchdog.start
        self.ended = watchdog.ended
        self.stop = watchdog.stop

    def _held_up(self, frame: FrameType) -> None:
        self._what = _call_in(frame)
        stack = "".join(traceback.format_stack(frame)[-_FRAMES:])
        logger.warning(
            "%s has held up the event loop for over %g s, and every client with it; await what takes "
            "long, or make it a plain `def`, which runs in a thread. It is here:\n%s",
            self._what,
            self._patience,
            stack,
        )

    def _went_on(self, seconds: float) -> None:
        logger.warning("%s held up the event loop for %.1f s in all", self._what, seconds)
        try:
            self._loop.call_soon_threadsafe(self._blocked, self._what, seconds)
        except RuntimeError:
            pass  # the loop is closed


def _call_in(frame: FrameType) -> str:
    """Name the call whose handler is on the stack."""
    from mcpearl.server.context import Context  # a start makes none

    each: FrameType | None = frame
    while each is not None:
        ctx = each.f_locals.get("ctx")
        if isinstance(ctx, Context):
            params = ctx.params
            named = getattr(params, "name", None) or getattr(params, "uri", None)
            return f"`{ctx.method}` of `{named:.128}`" if named else f"`{ctx.method}`"
        each = each.f_back
    return "Something outside of calls"
