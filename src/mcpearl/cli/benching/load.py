"""Calls from several clients at once, until the time is over."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcpearl.cli.benching.measures import Measures
from mcpearl.protocol.errors import ConnectionLost, McpearlError

if TYPE_CHECKING:
    from mcpearl.client.client import Client

Call = Callable[["Client"], Awaitable[Any]]


class Load:
    """A run of calls.

    Args:
        clients: what to call with.
        call: makes one call; what it raises of mcpearl is an error of the call.
        concurrency: calls at once, over all clients.
        rate: calls that begin each second; None begins each as soon as one has ended.
    """

    def __init__(
        self, clients: "list[Client]", call: Call, concurrency: int, rate: float | None
    ) -> None:
        self._clients = clients
        self._call = call
        self._concurrency = concurrency
        self._rate = rate
        self._next = 0

    async def run(self, seconds: float, measures: Measures | None) -> None:
        """Call for `seconds`, or until it is cancelled; without measures, only to warm up."""
        began, busy = time.perf_counter(), time.process_time()
        workers = [self._work(n, began, seconds, measures) for n in range(self._concurrency)]
        self._next = 0
        try:
            async with asyncio.timeout(seconds + 30):
                await asyncio.gather(*workers)
        finally:
            took = time.perf_counter() - began
            if measures is not None:
                measures.busy = (time.process_time() - busy) / took
                if took < seconds:
                    measures.end(took)

    async def _work(
        self, number: int, began: float, seconds: float, measures: Measures | None
    ) -> None:
        client = self._clients[number % len(self._clients)]
        while True:
            start = await self._turn(began)
            if start - began >= seconds:
                return
            error: McpearlError | None = None
            try:
                await self._call(client)
            except McpearlError as raised:
                error = raised
            now = time.perf_counter()
            if measures is not None and now - began <= seconds:
                if error is None:
                    measures.done(now - began, now - start)
                else:
                    measures.failed(now - began, _kind(error))
            if isinstance(error, ConnectionLost):
                await asyncio.sleep(
                    0.05
                )  # the client connects again; a loop of refusals helps nothing

    async def _turn(self, began: float) -> float:
        """Wait for the next call's turn, and return the time from which it is measured.

        With a rate, that is the planned time, even if no worker was free then: a caller would have
        waited in the queue, too.
        """
        if self._rate is None:
            return time.perf_counter()
        turn = began + self._next / self._rate
        self._next += 1
        wait = turn - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        return turn


def _kind(error: McpearlError) -> str:
    return f"{type(error).__name__}: {str(error)[:100]}"
