"""Calls that come when their time has come, whether or not earlier ones were answered.

Clients that wait for their answers slow down with the server and never overload it. These do not wait:
each call leaves at a time that was drawn before. What a call took is counted from that time, so that a
driver that falls behind shows as a slow server, and never as a fast one.
"""

import asyncio
import contextlib
import random
import statistics
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, cast

import uvloop

from bench import http_messages
from bench.environments import clean_environ
from bench.results import WrongAnswer
from bench.stdio import INITIALIZE, INITIALIZED

Wire = Literal["modern", "legacy", "tcp", "stdio"]
CONNECTIONS = {"modern": 1000, "legacy": 1000, "tcp": 100, "stdio": 1}
PATIENCE = 10.0  # seconds for the last answers
TICK = 0.0005  # seconds worth sleeping for


@dataclass(frozen=True)
class Outcome:
    """What became of the calls of one run."""

    offered: float
    """Calls per second that were made."""
    answered: float
    """Calls per second with a result."""
    refused: float
    """Calls per second that were told to come back."""
    p50: float
    """Milliseconds from the time a call was due to its result, of those that have one."""
    p99: float
    late: float
    """Milliseconds by which calls left late, of which one in a hundred left later."""

    def __str__(self) -> str:
        return (
            f"{self.offered:.0f}/s offered, {self.answered:.0f} answered, {self.refused:.0f} refused, "
            f"p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms (left late p99 {self.late:.1f} ms)"
        )


class _Http(asyncio.Protocol):
    """A keep-alive connection with one call at a time."""

    def __init__(self, driver: "_Driver", request: bytes) -> None:
        self._driver = driver
        self._request = request
        self._buffer = b""
        self._due = 0.0
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def send(self, due: float) -> None:
        self._due = due
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, rest = head.lower().partition(b"content-length:")
        if len(body) < int(rest.split(b"\r\n", 1)[0]):
            return
        self._buffer = b""
        status = head[9:12]
        if status not in (b"200", b"503"):
            self._driver.wrong(f"a call was answered with {status.decode()}: {body[:200]!r}")
        self._driver.ended(self._due, status == b"200")
        self._driver.free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.lost()


class _Lines(asyncio.Protocol):
    """A connection on which every line is a message, with any number of calls."""

    def __init__(self, driver: "_Driver", tool: str) -> None:
        self._driver = driver
        self._call = (
            b'{"jsonrpc":"2.0","id":%%d,"method":"tools/call","params":'
            b'{"name":"%b","arguments":{"a":1000,"b":7000}}}\n' % tool.encode()
        )
        self._buffer = b""
        self._due: dict[int, float] = {}
        self._next = 1
        self.ready = asyncio.get_running_loop().create_future()
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)
        self.transport.write(INITIALIZE)

    def send(self, due: float) -> None:
        number, self._next = self._next, self._next + 1
        self._due[number] = due
        self.transport.write(self._call % number)
        self._driver.free(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if b'"id":null' in line[:30]:
                self._driver.wrong(f"it said {line[:300]!r}")
                continue
            at = line.index(b'"id":') + 5
            number = int(line[at : line.index(b",", at)])
            if number == 0:
                self.transport.write(INITIALIZED)
                self.ready.set_result(None)
                continue
            refused = b'"error":' in line[:60]
            if refused and b"-32011" not in line:
                self._driver.wrong(f"a call was answered with {line[:200]!r}")
            self._driver.ended(self._due.pop(number), not refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.lost()


class _Driver:
    def __init__(self, rate: float, seconds: float) -> None:
        self._rate = rate
        self._seconds = seconds
        self._free: deque[_Http | _Lines] = deque()
        self._waiting: deque[float] = deque()  # calls that are due, and have no connection
        self._times: list[float] = []
        self._late: list[float] = []
        self._refused = self._open = 0
        self._failure: str | None = None
        self._over = False
        self._loop = asyncio.get_running_loop()

    def free(self, connection: _Http | _Lines) -> None:
        if self._waiting:
            connection.send(self._waiting.popleft())
        else:
            self._free.append(connection)

    async def run(self) -> Outcome:
        chance = random.Random(7)
        now = self._loop.time
        began = due = now()
        offered = 0
        while due < began + self._seconds and self._failure is None:
            due += chance.expovariate(self._rate)
            if (wait := due - now()) > TICK:
                await asyncio.sleep(wait)
            elif offered % 20 == 0:
                await asyncio.sleep(0)
            offered += 1
            self._open += 1
            self._late.append(now() - due)
            if self._free:
                self._free.popleft().send(due)
            else:
                self._waiting.append(due)
        took = now() - began
        until = now() + PATIENCE
        while self._open and self._failure is None and now() < until:
            await asyncio.sleep(0.01)
        self._over = True
        if self._open or self._failure is not None:
            raise WrongAnswer(self._failure or f"{self._open} calls were not answered")
        answered = len(self._times)
        times = [each * 1000 for each in self._times] or [0.0]
        return Outcome(
            offered / took,
            answered / took,
            self._refused / took,
            statistics.median(times),
            _p99(times),
            _p99([each * 1000 for each in self._late]),
        )

    def ended(self, due: float, answered: bool) -> None:
        self._open -= 1
        if answered:
            self._times.append(self._loop.time() - due)
        else:
            self._refused += 1

    def wrong(self, reason: str) -> None:
        self._failure = self._failure or reason

    def lost(self) -> None:
        if not self._over:
            self.wrong("the server closed a connection")


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[-1] if len(values) > 1 else values[0]


@asynccontextmanager
async def _http(driver: _Driver, port: int, tool: str, *, legacy: bool) -> AsyncIterator[None]:
    address = f"127.0.0.1:{port}"
    params = http_messages.add(1000) | {"name": tool}
    if legacy:
        session = await _session(port, address)
        request = http_messages.in_session(session, "tools/call", params, 1)
    else:
        request = http_messages.modern("tools/call", params, 1, tool)
    data = request.encode(address)
    async with _connected(driver, port, CONNECTIONS["modern"], lambda: _Http(driver, data)):
        yield


@asynccontextmanager
async def _connected(
    driver: _Driver, port: int, count: int, make: Callable[[], _Http | _Lines]
) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(count):
        _, connection = await loop.create_connection(make, "127.0.0.1", port)
        if isinstance(connection, _Lines):
            await asyncio.wait_for(connection.ready, PATIENCE)
        connections.append(connection)
        driver.free(connection)
    try:
        yield
    finally:
        for connection in connections:
            connection.transport.close()


async def _session(port: int, address: str) -> str:
    """Begin a session and return its id."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(http_messages.initialize().encode(address))
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = dict(line.lower().split(": ", 1) for line in head.splitlines() if ": " in line)
        await reader.readexactly(int(lines["content-length"]))
        session = next(
            line.split(": ", 1)[1]
            for line in head.splitlines()
            if line.lower().startswith("mcp-session-id")
        )
        writer.write(http_messages.initialized(session).encode(address))
        await reader.readuntil(b"\r\n\r\n")
    return session


@asynccontextmanager
async def _stdio(driver: _Driver, program: list[str], tool: str) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    process = await asyncio.create_subprocess_exec(
        *program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=clean_environ(),
        limit=1,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    connection = _Lines(driver, tool)
    connection.connection_made(process.stdin.transport)
    reading = loop.create_task(_read(process.stdout, connection))
    try:
        await asyncio.wait_for(connection.ready, PATIENCE)
        driver.free(connection)
        yield
    finally:
        reading.cancel()
        process.kill()
        await process.wait()


async def _read(stream: asyncio.StreamReader, connection: _Lines) -> None:
    while data := await stream.read(1 << 18):
        connection.data_received(data)
    connection.connection_lost(None)


def load(
    wire: Wire, target: int | list[str], rate: float, seconds: float, tool: str = "work"
) -> Outcome:
    """Make calls at this rate for some time.

    Args:
        wire: What they travel on.
        target: The server's port, or the command of a server on stdio.
        rate: Calls per second.
        seconds: How long.
        tool: The tool that is called; it adds two numbers.
    """

    async def main() -> Outcome:
        driver = _Driver(rate, seconds)
        if isinstance(target, list):
            connections = _stdio(driver, target, tool)
        elif wire == "tcp":
            connections = _connected(
                driver, target, CONNECTIONS[wire], lambda: _Lines(driver, tool)
            )
        else:
            connections = _http(driver, target, tool, legacy=wire == "legacy")
        async with connections:
            return await driver.run()

    return uvloop.run(main())
