"""A tool with limits of its own: how often each caller may call it, and how many calls run at once."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from msgspec import Raw, UnsetType

from mcpearl.protocol.errors import Overloaded, RateLimited
from mcpearl.protocol.events import Encoded
from mcpearl.runtime.bulkhead import Bulkhead, BulkheadFull
from mcpearl.runtime.rate import Meter, RateLimit
from mcpearl.server.context import Context, call_of, share_of
from mcpearl.server.registry.tools import ToolEntry
from mcpearl.server.throttle import key_of
from mcpearl.types.base import Result

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool


class LimitedTool(ToolEntry):
    """A registered tool that refuses calls over its limits before it decodes their arguments."""

    __slots__ = ("_bulkhead", "_key_of", "meter")

    def __init__(
        self,
        function: Callable[..., Any],
        pool: "ThreadPool",
        *,
        rate: RateLimit | None = None,
        concurrency: int | None = None,
        queue: int = 100,
        **options: Any,
    ) -> None:
        super().__init__(function, pool, **options)
        name = f"tool `{self.definition.name}`"
        self.meter: Meter | None = None if rate is None else Meter(rate)
        self._key_of = key_of("principal" if rate is None else rate.by)
        self._bulkhead = None if concurrency is None else Bulkhead(concurrency, queue, name)
        self.at_once = self.at_once and concurrency is None

    async def call(self, raw: Raw | UnsetType, ctx: Context) -> Result | Encoded:
        """Call the tool, when its limits allow it."""
        if self.meter is not None:
            wait = self.meter.take(self._key_of(call_of(ctx)))
            if wait:
                over = RateLimited(f"{self.meter.limit} of tool `{self.definition.name}`", wait)
                ctx.core.refused("tool.rate", over.message)
                raise over
        if self._bulkhead is None:
            return await super().call(raw, ctx)
        peer = _peer_of(ctx)
        try:
            await self._bulkhead.enter(peer)
        except BulkheadFull as full:
            overload = Overloaded(str(full))
            ctx.core.refused("tool.concurrency", overload.message)
            raise overload from None
        try:
            return await super().call(raw, ctx)
        finally:
            self._bulkhead.leave(peer)


def _peer_of(ctx: Context) -> Hashable:
    """Return the key of the client that calls: its share, or else its address if it has one."""
    share = share_of(ctx)
    return key_of("address")(call_of(ctx)) if share is None else share
