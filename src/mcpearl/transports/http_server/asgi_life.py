"""Starts and stops an endpoint under an ASGI server, even if its lifespan is not run.

An application that is mounted in another one does not learn when the program starts and stops, unless
the outer application passes that on. If it does not, the endpoint starts with the first request, and
logs what is missing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mcpearl.net.http_server.asgi_request import Receive, Send

logger = logging.getLogger("mcpearl.server")

_ADVICE = (
    "the MCP server is mounted in an application that does not run its lifespan. It was started by this "
    "request and ends with the event loop, without waiting for calls in flight. To start and stop it "
    "with the application, keep the result of `app.asgi()` as `mcp` and write "
    "`FastAPI(lifespan=mcp.lifespan)`, or the same with `Starlette`"
)


class AsgiLife:
    """Keeps a server running for its ASGI application.

    Args:
        running: Returns the context manager in which the endpoint can serve.
    """

    def __init__(self, running: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._running = running
        self._alone: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self.up = 0
        """How many contexts keep it running: while it is 0, a request has to wait for `start_alone`."""

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Return a context in which the server is kept running."""
        async with self._running():
            self.up += 1
            try:
                yield
            finally:
                self.up -= 1

    async def serve(self, receive: Receive, send: Send) -> None:
        """Answer the lifespan protocol of an ASGI server."""
        await receive()
        up = False
        try:
            async with self.held():
                up = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except BaseException as error:
            stage = "shutdown" if up else "startup"
            await send({"type": f"lifespan.{stage}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    async def start_alone(self) -> None:
        """Start without a lifespan, once for all requests that wait for it. Raises the start's error."""
        loop = asyncio.get_running_loop()
        if self._ready is None or self._ready.get_loop() is not loop or _failed(self._ready):
            logger.warning(_ADVICE)
            self._ready = loop.create_future()
            self._alone = loop.create_task(self._hold_alone(self._ready))
        await asyncio.shield(self._ready)

    async def _hold_alone(self, ready: "asyncio.Future[None]") -> None:
        """Keep the server running until the task is cancelled, as all tasks are when the loop ends."""
        try:
            async with self.held():
                ready.set_result(None)
                await asyncio.get_running_loop().create_future()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)


def _failed(ready: "asyncio.Future[None]") -> bool:
    return ready.done() and (ready.cancelled() or ready.exception() is not None)
