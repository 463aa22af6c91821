"""A balancer without stickiness: each request goes to the next server, on a connection of its own.

`python -m tests.deployment.round_robin --port 8000 PORT PORT PORT` runs one.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from typing import NamedTuple

_LIMIT = 64 * 1024
_PATIENCE = 2.0  # seconds to reach a server

Place = tuple[str, int]
"""Host and port."""


class Passed(NamedTuple):
    """A request that was passed on, and the head of its response."""

    method: bytes
    headers: dict[bytes, bytes]
    body: bytes
    status: int
    answered: dict[bytes, bytes]
    """The headers of the response."""


Watch = Callable[[Passed], None]


class RoundRobin:
    """Passes HTTP requests on, in turn.

    Args:
        places: Where.
        watch: Called with every request, once its response begins.
    """

    def __init__(self, places: list[Place], watch: Watch | None = None) -> None:
        self._watch = watch
        self._count = len(places)
        self._places = cycle(places)
        self.passed = 0
        self.begun = 0  # sessions that were asked for, whether or not an answer came back
        self.ended: list[str] = []  # ids of sessions whose end was acknowledged
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._pass(reader, writer)
        with suppress(OSError):
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        kept = [line for line in lines if not line.lower().startswith(b"connection:")]
        sizes = [int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")]
        body = await reader.readexactly(sizes[0]) if sizes else b""
        self.passed += 1
        self.begun += b'"initialize"' in body
        method, headers = first.partition(b" ")[0], _headers(lines)
        far_reader, far = await self._next()
        try:
            far.write(b"\r\n".join([first, *kept, b"connection: close", b"", body]))
            gone = asyncio.create_task(reader.read(1))  # a client that hangs up
            copying = asyncio.create_task(self._copy(far_reader, writer, (method, headers, body)))
            await asyncio.wait([gone, copying], return_when=asyncio.FIRST_COMPLETED)
            for task in (gone, copying):
                task.cancel()
            await asyncio.gather(gone, copying, return_exceptions=True)  # a server that was killed
        finally:
            far.close()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the next server; one that does not listen is passed over, as balancers do."""
        for _ in range(self._count - 1):
            with suppress(OSError):
                return await self._connect()
        return await self._connect()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_PATIENCE):
            return await asyncio.open_connection(*next(self._places))

    async def _copy(
        self,
        far: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: tuple[bytes, dict[bytes, bytes], bytes],
    ) -> None:
        head = await far.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        passed = Passed(*request, int(first.split()[1]), _headers(lines))
        if passed.method == b"DELETE" and passed.status == 204:
            self.ended.append(passed.headers[b"mcp-session-id"].decode())
        if self._watch is not None:
            self._watch(passed)
        writer.write(head)
        while data := await far.read(_LIMIT):
            writer.write(data)
            await writer.drain()


def _headers(lines: list[bytes]) -> dict[bytes, bytes]:
    named = (line.partition(b":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in named}


@asynccontextmanager
async def balancing(
    places: Sequence[int | Place], port: int = 0, watch: Watch | None = None
) -> AsyncIterator[RoundRobin]:
    """Listen on a port, and pass on to these places; a number is a port of this machine."""
    balancer = RoundRobin(
        [("127.0.0.1", place) if isinstance(place, int) else place for place in places], watch
    )
    server = await asyncio.start_server(balancer._serve, "127.0.0.1", port)
    balancer.port = server.sockets[0].getsockname()[1]
    try:
        yield balancer
    finally:
        server.close()


async def _run(ports: list[int], port: int) -> None:
    async with balancing(ports, port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(_run(options.ports, options.port))
