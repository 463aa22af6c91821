"""How a server starts and stops: everything it holds while it runs, in order."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcpearl.runtime.backoff import Backoff, doubling
from mcpearl.runtime.child import Child
from mcpearl.runtime.lag import LoopLag
from mcpearl.runtime.loading import Loading
from mcpearl.runtime.threads import ThreadPool
from mcpearl.server.composing import Composing
from mcpearl.server.lifespan import LifespanTask
from mcpearl.server.roster import UNWINDING
from mcpearl.server.tree import EXPORTER, WATCHDOG, ServerTree

if TYPE_CHECKING:
    from mcpearl.runtime.rate import Meter
    from mcpearl.server.extensions import ServerExtension
    from mcpearl.server.isolation.isolation import Isolation
    from mcpearl.server.throttle import Throttle
    from mcpearl.stores.shared import SharedStore
else:
    Isolation = ServerExtension = SharedStore = Throttle = Any

logger = logging.getLogger("mcpearl.server")

_FLUSHING = 4.0  # seconds for what is left to be exported at the end
_SETTLING = 1.0  # seconds until what no start needs is loaded
_RARE = Backoff(delays=doubling(1.0, 60.0))  # of a part that the server can do without

AFTER_START = (
    "protocol.foreign",
    "protocol.snapshot",
    "runtime.names",
    "runtime.timers",
    "schema.output",
    "schema.signature",
    "schema.whole_numbers",
    "schema.wording",
    "server.calls",
    "server.failures",
    "server.large_calls",
    "server.listen_streams",
    "server.questions",
    "server.refused_message",
    "server.registry.forms",
    "server.registry.results",
    "server.registry.tools",
    "server.session",
    "server.session_subscriptions",
    "transports.null",
)
"""Modules that calls and sessions need but a start does not."""


class Running(Composing):
    """The part of a `Server` that starts and stops what it holds."""

    parts: ServerTree
    lag: LoopLag
    shared: "SharedStore | None"
    isolation: "Isolation | None"
    _throttle: "Throttle | None"

    def _meters(self) -> "dict[str, Meter]":
        """Return the meters that count calls against rates; `Server` overrides this."""
        raise NotImplementedError

    _blocked_after: float | None
    _lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None

    @property
    def name(self) -> str:
        """The server's name."""
        return self.core.offer.info.name

    @property
    def lifespan_value(self) -> Any:
        """What the lifespan yielded, while the server runs."""
        return self.core.lifespan_value

    async def _start_extensions(self) -> None:
        raise NotImplementedError

    async def _flush(self) -> None:
        """Export what is left, in a thread; do not wait long for it."""
        from mcpearl.telemetry.sdk import left_to_flush

        flush = left_to_flush()
        if flush is None:
            return
        pool = ThreadPool(1, name="mcpearl-export")
        with suppress(Exception):
            async with asyncio.timeout(_FLUSHING):
                await pool.run(flush)
        pool.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the server up: its lifespan is entered by the first holder and left by the last."""
        first = await self._uptime.hold()
        try:
            yield
        finally:
            await self._uptime.release(first=first)

    async def _up(self, stack: AsyncExitStack) -> Any:
        """Listen to what other processes publish, and enter the lifespan; return its value."""
        subscriptions = self.core.subscriptions
        if self.shared is not None:
            await self.core.join(self.shared)
            stack.push_async_callback(self.shared.close)
        if self.core.recorder is not None:
            await self.core.recorder.start()
            stack.push_async_callback(self.core.recorder.stop)
            stack.callback(self.parts.show(self.core.recorder))
        stack.callback(self._broadcast.hear())
        await self.parts.start(self.bus, subscriptions.all_changed)
        stack.push_async_callback(self.parts.root.stop)
        if self.shared is not None:
            from mcpearl.server.spread_limits import SpreadLimits

            limits = SpreadLimits(self._meters, self.shared.rates, self._compose)
            limits.spread()
            await self.parts.add_store(self.shared, rates=limits.run)
        stack.push_async_callback(self._stop_isolation)
        if self.isolation is not None:
            await self.isolation.start()  # before there is a thread
        if self._blocked_after is not None:
            with Loading():
                from mcpearl.server.blocking import BlockingWatch

            watch = BlockingWatch(self._blocked_after, self.core.blocked)
            await self.parts.root.add(Child(WATCHDOG, watch, backoff=_RARE))
        if self.core.exported is not None:
            from mcpearl.telemetry.exporter import ExporterPart

            await self.parts.root.add(Child(EXPORTER, ExporterPart(self.name)))
            stack.push_async_callback(self._flush)
        self.lag.start()
        stack.callback(self.lag.stop)
        if self._lifespan is not None:
            await self._enter_lifespan(stack)
        stack.push_async_callback(self._stop_parts)
        await self._start_parts()
        if self._throttle is not None:
            self._throttle.start()
            stack.callback(self._throttle.stop)
        stack.push_async_callback(self._close_extensions)
        await self._start_extensions()
        await self.parts.start_background()
        stack.push_async_callback(self.parts.stop_background)
        stack.callback(asyncio.get_running_loop().call_later(_SETTLING, self._load_rest).cancel)
        return self.lifespan_value

    async def _enter_lifespan(self, stack: AsyncExitStack) -> None:
        assert self._lifespan is not None
        lifespan = LifespanTask(self.name, self._lifespan(self), self._lifespan_failed)
        self._entered(await lifespan.enter())
        stack.push_async_callback(lifespan.leave)

    def _lifespan_failed(self, error: BaseException) -> bool:
        """Tell the servers this one is mounted in, and its first holder; return whether there are any."""
        for outer in self.core.enclosing:
            outer.failed(error)
        return self._uptime.fail(error) or bool(self.core.enclosing)

    async def _stop_isolation(self) -> None:
        if self.isolation is not None:
            await self.isolation.stop()

    async def _close_extensions(self) -> None:
        for extension in reversed(self._extensions):
            await extension.close()

    def _entered(self, value: Any) -> None:
        self.core.lifespan_value = value

    def _load_rest(self) -> None:
        """Load what calls and sessions need but a start does not, and compile tools.

        The first use of it may be a failure, and a server without a free file descriptor can load
        nothing.
        """
        try:
            for module in AFTER_START:
                import_module(f"mcpearl.{module}")
            self._registry.compile_tools()
        except (ImportError, OSError):
            logger.warning("cannot load modules that calls will need", exc_info=True)

    async def _leaving(self) -> None:
        await self.core.attendants.settle(UNWINDING)
        await self.core.roster.settle()
        for coalescer in self._coalescers.values():
            coalescer.flush()
