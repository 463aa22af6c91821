"""Calls over HTTP that come when their time has come, whether or not earlier ones were answered.

Clients that wait for their answers slow down with the server and never overload it. These do not wait:
each call leaves at a time that was drawn before, on a connection that is free.
"""

import asyncio
import random
import statistics
from dataclasses import dataclass
from typing import cast

import uvloop

from bench import http_messages
from bench.http_server import HttpServer
from bench.results import WrongAnswer

CONNECTIONS = 1000


@dataclass(frozen=True)
class Outcome:
    """What became of the calls of one run."""

    offered: float
    """Calls per second that were made."""
    answered: float
    """Calls per second with a result."""
    refused: float
    """Calls per second that were told to come back."""
    p99: float
    """Milliseconds from the time a call was due to its result, of those that have one."""


class _Connection(asyncio.Protocol):
    """One keep-alive connection, with one call at a time."""

    def __init__(self, driver: "_Driver") -> None:
        self._driver = driver
        self._buffer = b""
        self._due = 0.0
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def send(self, request: bytes, due: float) -> None:
        self._due = due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, rest = head.lower().partition(b"content-length:")
        if len(body) < int(rest.split(b"\r\n", 1)[0]):
            return
        self._buffer = b""
        self._driver.ended(self, self._due, head.split(b" ", 2)[1])

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.lost()


class _Driver:
    def __init__(self, server: HttpServer, rate: float, seconds: float) -> None:
        self._server = server
        self._rate = rate
        self._seconds = seconds
        self._free: list[_Connection] = []
        self._times: list[float] = []
        self._refused = self._open = self._offered = 0
        self._over = False
        self._loop = asyncio.get_running_loop()

    async def run(self) -> Outcome:
        for _ in range(CONNECTIONS):
            _, connection = await self._loop.create_connection(
                lambda: _Connection(self), "127.0.0.1", self._server.port
            )
            self._free.append(connection)
        address = f"127.0.0.1:{self._server.port}"
        params = http_messages.add(1) | {"name": "work"}
        request = http_messages.modern("tools/call", params, 1, "work").encode(address)
        chance = random.Random(7)
        began = due = self._loop.time()
        while due < began + self._seconds:
            due += chance.expovariate(self._rate)
            if (wait := due - self._loop.time()) > 0.0005:
                await asyncio.sleep(wait)
            elif self._offered % 20 == 0:
                await asyncio.sleep(0)
            self._offered += 1
            if not self._free:
                raise WrongAnswer(f"{CONNECTIONS} calls wait for an answer")
            self._open += 1
            self._free.pop().send(request, due)
        took = self._loop.time() - began
        while self._open:
            await asyncio.sleep(0.01)
        self._over = True
        for connection in self._free:
            connection.transport.close()
        p99 = statistics.quantiles(self._times, n=100)[-1] * 1000 if len(self._times) > 1 else 0.0
        return Outcome(self._offered / took, len(self._times) / took, self._refused / took, p99)

    def ended(self, connection: _Connection, due: float, status: bytes) -> None:
        if status == b"200":
            self._times.append(self._loop.time() - due)
        elif status == b"503":
            self._refused += 1
        else:
            raise WrongAnswer(f"a call was answered with {status.decode()}")
        self._open -= 1
        self._free.append(connection)

    def lost(self) -> None:
        if not self._over:
            raise WrongAnswer("the server closed a connection")


def load(server: HttpServer, rate: float, seconds: float) -> Outcome:
    """Make calls at this rate for some time."""

    async def main() -> Outcome:
        return await _Driver(server, rate, seconds).run()

    return uvloop.run(main())
