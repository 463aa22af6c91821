"""One server as three: two more that answer the same, and every connection goes to the next of them.

The three share a store, and nothing else that matters to a client. Bytes pass as they come, so that tests
of raw HTTP need not know of the balancer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import cycle
from typing import Any

import pytest

from mcpearl import Server
from tests.ports import free_port
from tests.waiting import eventually

MACHINES = 3
_LIMIT = 64 * 1024
_LAST_WORDS = 1.0  # seconds connections have to end with their server

Given = tuple[tuple[Any, ...], dict[str, Any]]


class Replicas:
    """Makes servers that answer as a given one does: the same options, and the same registry.

    Args:
        monkeypatch: Ends the noting of options with the test.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._given: dict[int, Given] = {}
        make: Callable[..., None] = Server.__init__

        def noted(server: Server, *args: Any, **options: Any) -> None:
            self._given[id(server)] = (args, options)
            make(server, *args, **options)

        monkeypatch.setattr(Server, "__init__", noted)

    def of(self, app: Server) -> Server:
        """Return another server with what is registered in this one."""
        args, options = self._given[id(app)]
        made = Server(*args, **{**options, "handler": app.handler})
        made.web.routes.update(app.web.routes)
        return made

    @asynccontextmanager
    async def serving(self, app: Server, **options: Any) -> AsyncIterator[int]:
        """Serve at three ports; the port of the balancer is returned."""
        ports = [free_port() for _ in range(MACHINES)]
        servers = [app, *(self.of(app) for _ in ports[1:])]
        async with AsyncExitStack() as stack:
            port = await stack.enter_async_context(balancing_connections(ports))
            for server, own in zip(servers, ports, strict=True):
                await stack.enter_async_context(_served(server, own, options))
            yield port


@asynccontextmanager
async def _served(server: Server, port: int, options: dict[str, Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(server.serve("http", port=port, **options))

    async def is_open() -> bool:
        if task.done():
            await task
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await eventually(is_open)
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def balancing_connections(ports: list[int]) -> AsyncIterator[int]:
    """Pass each connection to the next port, byte by byte; the own port is returned."""
    places = cycle(ports)
    open_now: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            with suppress(OSError):
                far_reader, far = await asyncio.open_connection("127.0.0.1", next(places))
                await _join((reader, far), (far_reader, writer))
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            open_now.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_LIMIT)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        if open_now:  # what the servers said last is on its way
            await asyncio.wait(open_now, timeout=_LAST_WORDS)
        for task in list(open_now):
            task.cancel()
        if open_now:
            await asyncio.wait(open_now)


async def _join(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Copy both ways until either end is gone; an end that only stops sending is told the other."""
    (_, far) = ways[0]
    copies = [asyncio.create_task(_copy(*way)) for way in ways]
    try:
        done, _ = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        if copies[1] not in done and copies[0].exception() is None:
            await copies[1]  # the client has sent everything, and still reads
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        far.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_LIMIT):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
