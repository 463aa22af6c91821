"""When a server is up: its lifespan is entered by the first holder and left by the last.

What is held is a stack, not an async generator: a loop that ends closes all generators at once, and one
that is inside another would be closed twice.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any


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

    async def hold(self) -> None:
        """Hold the server up; raises what the lifespan raises."""
        loop = asyncio.get_running_loop()
        if self._holders and self._loop is not loop:
            raise RuntimeError(f"{self._name} is running on another event loop already")
        if not self._holders:
            self._starting = asyncio.Lock()
            self._loop = loop
            self._thread = threading.get_ident()
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
