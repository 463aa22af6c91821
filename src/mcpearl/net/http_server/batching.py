"""Serving together what came together.

The loop reads one connection after the other. Served in between, each request finds the caches of the
machine full of what it takes to read; all served after all were read, most find what the one before
them left there. The price is one turn of the loop, so who is alone does not pay it.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpearl.net.http_server.http1_request import Http1Request

_AT_ONCE = 64  # requests, before the loop looks at what else there is


class IterationBatch:
    """The requests that wait for the end of this turn of the loop."""

    __slots__ = ("_visits",)

    def __init__(self) -> None:
        self._visits: deque[Http1Request] = deque()

    def add(self, visit: "Http1Request", loop: asyncio.AbstractEventLoop) -> None:
        """Serve this one with the others."""
        if not self._visits:
            loop.call_soon(self._serve, loop)
        self._visits.append(visit)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        visits = self._visits
        for _ in range(min(len(visits), _AT_ONCE)):
            visit = visits.popleft()
            if not visit.gone:
                visit.protocol.begin(visit)
        if visits:
            loop.call_soon(self._serve, loop)
