"""A network that can be told to fail, between real clients and real servers.

It accepts on one address and connects to another, and passes on what it reads, in order, with the
faults that are set at the moment. What is cut is cut for good; new connections work again once the
faults are gone.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

Place = int | Path  # a port of this machine, or the path of a Unix socket
_PIECE = 64 * 1024


class FaultProxy:
    """Faults are attributes; `cut`, `reset`, `refuse` and `accept` happen at once."""

    def __init__(self, near: Place, far: Place) -> None:
        self.delay = 0.0  # seconds before anything is passed on
        self.rate: int | None = None  # bytes per second
        self.deaf = False  # half-open: connections stand, nothing arrives any more
        self.clogged = False  # connections stand, what the server says is left unread
        self.allowance: Callable[[], int | None] = lambda: None  # bytes until a new one is cut
        self.cuts = 0  # connections that were cut
        self.taken = 0  # connections that were taken
        self._near = near
        self._far = far
        self._listening: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self) -> None:
        """Take connections."""
        if self._listening is not None:
            return
        if isinstance(self._near, int):
            start = asyncio.start_server(self._take, "127.0.0.1", self._near)
        else:
            self._near.unlink(missing_ok=True)
            start = asyncio.start_unix_server(self._take, self._near)
        self._listening = await start

    async def refuse(self) -> None:
        """Take no more connections: whoever tries is refused by the system."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def close(self) -> None:
        await self.refuse()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> int:
        """End every connection in order; how many there were."""
        return self._end(reset=False)

    def reset(self) -> int:
        """End every connection without a word of goodbye."""
        return self._end(reset=True)

    def _end(self, *, reset: bool) -> int:
        ended = len(self._links)
        for link in list(self._links):
            link.end(reset=reset)
        return ended

    def say(self, data: bytes) -> None:
        """Put something into the mouth of the server, on every connection."""
        for link in self._links:
            link.client.write(data)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if isinstance(self._far, int):
                far = await asyncio.open_connection("127.0.0.1", self._far)
            else:
                far = await asyncio.open_unix_connection(self._far)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, writer, far[1], self.allowance())
        self._links.add(link)
        try:
            await asyncio.gather(
                link.pump(reader, far[1].write, far[1].drain, far[1].write_eof),
                link.pump(far[0], writer.write, writer.drain, writer.write_eof),
            )
        except OSError:
            pass
        finally:
            self._links.discard(link)
            link.end(reset=False)


class _Link:
    """One connection, and its continuation on the other side."""

    def __init__(
        self,
        proxy: FaultProxy,
        client: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        allowance: int | None,
    ) -> None:
        self.client = client
        self._proxy = proxy
        self._server = server
        self._left = allowance
        self._lost = False  # it was open while the network was deaf
        self._ended = False

    async def pump(
        self,
        source: asyncio.StreamReader,
        write: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]],
        finish: Callable[[], None],
    ) -> None:
        proxy = self._proxy
        while data := await source.read(_PIECE):
            if proxy.delay:
                await asyncio.sleep(proxy.delay)
            while proxy.clogged and write == self.client.write and not self._ended:
                await asyncio.sleep(0.02)
            self._lost = self._lost or proxy.deaf
            if self._lost:
                continue
            if self._left is not None:
                if len(data) >= self._left:
                    write(data[: self._left])
                    await drain()
                    proxy.cuts += 1
                    self.end(reset=self._left % 2 == 0)
                    return
                self._left -= len(data)
            if proxy.rate is None:
                write(data)
                await drain()
                continue
            while data and proxy.rate is not None:  # a twentieth of a second's worth at a time
                share = max(1, proxy.rate // 20)
                write(data[:share])
                data = data[share:]
                await asyncio.sleep(0.05)
            write(data)
        if not self._ended and not self._lost:
            finish()

    def end(self, *, reset: bool) -> None:
        if self._ended:
            return
        self._ended = True
        for side in (self.client, self._server):
            system = side.get_extra_info("socket")
            if reset and system is not None and system.family != socket.AF_UNIX:
                system.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                side.transport.abort()
            else:
                side.close()
