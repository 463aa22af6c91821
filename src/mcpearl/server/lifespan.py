"""When a server is up: its lifespan is entered by the first holder and left by the last.

What is held is a stack, not an async generator: a loop that ends closes all generators at once, and one
that is inside another would be closed twice.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from contextvars import ContextVar, Token, copy_context
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
        self._changing: asyncio.Lock | None = None  # held while what is held is entered or left
        self._changing_on: asyncio.AbstractEventLoop | None = None
        self._stack: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._first: asyncio.Task[Any] | None = None  # the first holder, while it holds the server
        self._error: BaseException | None = None  # for which the first holder was cancelled

    async def hold(self) -> bool:
        """Hold the server up; raises what the lifespan raises.

        Returns:
            Whether this is the first holder, for `release`.
        """
        loop = asyncio.get_running_loop()
        if self._holders and self._loop is not loop:
            raise RuntimeError(f"{self._name} is running on another event loop already")
        if not self._holders:
            if self._changing_on is not loop:
                self._changing, self._changing_on = asyncio.Lock(), loop
            self._loop = loop
            self._thread = threading.get_ident()
        self._holders += 1
        first = False
        assert self._changing is not None
        try:
            async with self._changing:
                first = self._stack is None or self._holders == 1
                if first:
                    self._first = asyncio.current_task()
                if self._stack is None:
                    await self._go_up()
        except BaseException:
            await self.release(first=first)
            raise
        return first

    async def _go_up(self) -> None:
        async with AsyncExitStack() as stack:
            self._entered(await self._enter(stack))
            self._stack = stack.pop_all()

    async def release(self, *, first: bool) -> None:
        """Let go of the server; the last holder ends its lifespan.

        Args:
            first: What `hold` returned.
        """
        error = self._let_go(first=first)
        try:
            if self._is_left:
                await self._leaving()
        finally:
            if self._is_left:
                await self._go_down()
        if error is not None:
            raise error

    @property
    def _is_left(self) -> bool:
        return self._holders == 0 and self._stack is not None

    async def _go_down(self) -> None:
        assert self._stack is not None and self._changing is not None
        stack, self._stack = self._stack, None
        self._loop = self._thread = None
        self._entered(None)
        async with self._changing:  # a holder that comes meanwhile waits
            await stack.aclose()

    def _let_go(self, *, first: bool) -> BaseException | None:
        """Count a holder less; return the error for which it was cancelled."""
        self._holders -= 1
        if self._holders == 0 and self._stack is None:
            self._loop = self._thread = None
        if not first:
            return None
        error, self._error = self._error, None
        if error is not None and self._first is not None:
            self._first.uncancel()
        self._first = None
        return error

    def fail(self, error: BaseException) -> bool:
        """Cancel the first holder, as a task group would: it raises the error when it lets go.

        Returns:
            Whether that holder is still there.
        """
        if self._first is None:
            return False
        self._error = error
        return self._first.cancel()

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
    first holder too.

    Args:
        name: The server, for the name of the task and for error messages.
        lifespan: What to enter.
        failed: Called with the error of a lifespan that ends while the server runs; returns whether a
            holder of the server is told.
    """

    def __init__(
        self,
        name: str,
        lifespan: AbstractAsyncContextManager[Any],
        failed: Callable[[BaseException], bool],
    ) -> None:
        self._name = name
        self._lifespan = lifespan
        self._failed = failed
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tokens: list[tuple[ContextVar[Any], Token[Any]]] = []  # of variables that it set

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
            self._over.set()  # a lifespan that ignores the cancellation is left at once
            task.cancel()
            await asyncio.wait((task,))
            raise
        if task.done():
            await task  # raises why the lifespan could not be entered
        for variable, value in context.items():
            if variable.get(_UNSET) is not value:
                self._tokens.append((variable, variable.set(value)))
        task.add_done_callback(self._ended)
        return entered.result()

    async def _run(self, entered: "asyncio.Future[Any]") -> None:
        async with self._lifespan as value:
            entered.set_result(value)
            await self._over.wait()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Report a lifespan that ended by itself."""
        if self._over.is_set() or task.cancelled():
            return
        ended = f"the lifespan of {self._name} ended while the server was running"
        error = task.exception() or RuntimeError(ended)
        if not self._failed(error):
            said = "the lifespan of %s failed; the server goes on without"
            logger.error(said, self._name, exc_info=error)

    async def leave(self) -> None:
        """Leave the lifespan; raises what it raises."""
        assert self._task is not None
        self._over.set()
        for variable, token in self._tokens:
            with suppress(ValueError):  # another task entered it
                variable.reset(token)
        if not self._task.cancelled():  # a loop that ends cancels every task
            await self._task


_UNSET: Any = object()
