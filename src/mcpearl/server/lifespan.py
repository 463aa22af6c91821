"""When a server is up: its lifespan is entered by the first holder and left by the last.

What is held is a stack, not an async generator: a loop that ends closes all generators at once, and one
that is inside another would be closed twice.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import copy_context
from typing import Any

logger = logging.getLogger("mcpearl.server")


class Uptime:
    """Counts the holders of a server, and knows the loop it runs on.

    Args:
        name: The server, for error messages.
        enter: Puts what is held while the server runs on a stack, and returns the lifespan's value.
        entered: Called with that value, and with None before what is held is left.
        leaving: Awaited before what is held is left.
    """

    def __init__(
        self,
        name: str,
        enter: Callable[[AsyncExitStack], Awaitable[Any]],
        entered: Callable[[Any], None],
        leaving: Callable[[], Awaitable[None]],
    ) -> None:
        self._name = name
        self._enter = enter
        self._entered = entered
        self._leaving = leaving
        self._holders = 0
        self._starting: asyncio.Lock | None = None
        self._stack: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self.first: asyncio.Task[Any] | None = None
        """The first holder, while it holds the server."""

    async def hold(self) -> None:
        """Hold the server up; raises what the lifespan raises."""
        loop = asyncio.get_running_loop()
        if self._holders and self._loop is not loop:
            raise RuntimeError(f"{self._name} is running on another event loop already")
        if not self._holders:
            self._starting = asyncio.Lock()
            self._loop = loop
            self._thread = threading.get_ident()
            self.first = asyncio.current_task()
        self._holders += 1
        assert self._starting is not None
        async with self._starting:
            if self._stack is None:
                try:
                    async with AsyncExitStack() as stack:
                        self._entered(await self._enter(stack))
                        self._stack = stack.pop_all()
                except BaseException:
                    self._holders -= 1
                    raise

    async def release(self) -> None:
        """Let go of the server; the last holder ends its lifespan."""
        self._holders -= 1
        if self.first is asyncio.current_task():
            self.first = None
        if self._holders == 0 and self._stack is not None:
            await self._leaving()
        if self._holders == 0 and self._stack is not None:
            stack, self._stack = self._stack, None
            self._loop = None
            self._thread = None
            self._entered(None)
            await stack.aclose()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop the server runs on, while it runs."""
        return self._loop

    def on_loop(self, action: Callable[[], Any]) -> None:
        """Run an action on the server's loop, from any thread; drop it when the server is down."""
        if self._loop is None or self._loop.is_closed():
            return
        if threading.get_ident() == self._thread:
            action()
        else:
            self._loop.call_soon_threadsafe(action)


class LifespanTask:
    """Enters and leaves a lifespan in one task of its own.

    The first and the last holder of a server may be different tasks, and a task group inside a lifespan
    has to be left by the task that entered it. Context variables that the lifespan sets are set for its
    first holder too. A lifespan that fails while the server runs cancels that holder, as a task group
    would, and its error is raised when the lifespan is left.

    Args:
        name: The server, for the name of the task and for log messages.
        lifespan: What to enter.
        holder: Returns the first holder, while it holds the server.
    """

    def __init__(
        self,
        name: str,
        lifespan: AbstractAsyncContextManager[Any],
        holder: "Callable[[], asyncio.Task[Any] | None]",
    ) -> None:
        self._name = name
        self._lifespan = lifespan
        self._holder = holder
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._cancelled: asyncio.Task[Any] | None = None  # the holder, when the lifespan failed

    async def enter(self) -> Any:
        """Enter the lifespan and return its value; raises what it raises."""
        loop = asyncio.get_running_loop()
        context = copy_context()
        entered: asyncio.Future[Any] = loop.create_future()
        name = f"lifespan of {self._name}"
        self._task = task = loop.create_task(self._run(entered), name=name, context=context)
        try:
            await asyncio.wait((task, entered), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            raise
        if task.done():
            await task  # raises why the lifespan could not be entered
        for variable, value in context.items():
            if variable.get(None) is not value:
                variable.set(value)
        task.add_done_callback(self._ended)
        return entered.result()

    async def _run(self, entered: "asyncio.Future[Any]") -> None:
        async with self._lifespan as value:
            entered.set_result(value)
            await self._over.wait()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Tell the holder of a lifespan that ended by itself."""
        if self._over.is_set() or task.cancelled():
            return
        self._cancelled = self._holder()
        if self._cancelled is not None:
            self._cancelled.cancel()
        else:
            logger.error("the lifespan of %s failed; the server goes on without", self._name)

    async def leave(self) -> None:
        """Leave the lifespan; raises what it raises."""
        assert self._task is not None
        self._over.set()
        if self._cancelled is not None and self._cancelled is asyncio.current_task():
            self._cancelled.uncancel()
        if not self._task.cancelled():  # a loop that ends cancels every task
            await self._task
