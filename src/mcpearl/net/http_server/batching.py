"""Requests that arrive together are served together, and their responses written together.

The loop reads one connection after the other. Requests read in the same iteration are served back to
back afterwards, which keeps the processor's caches warm, and what they answer is written once all are
served: the first write wakes a sleeping client, and the others find it awake. A lone connection does
not wait for the end of the iteration.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpearl.net.http_server.http1_request import Http1Request

_AT_ONCE = 64  # requests served before the loop looks for other work


class IterationBatch:
    """The requests of one loop iteration, then the writes of their responses."""

    __slots__ = ("_requests", "_writes", "collecting", "put")

    def __init__(self) -> None:
        self.collecting = False  # while requests are served; writes are put here then
        self._requests: deque[Http1Request] = deque()
        self._writes: list[tuple[asyncio.Transport, bytes]] = []
        self.put = self._writes.append
        """Write later, in order. Only while `collecting`."""

    def add(self, request: "Http1Request", loop: asyncio.AbstractEventLoop) -> None:
        """Serve a request together with the others of this iteration."""
        if not self._requests:
            loop.call_soon(self._serve, loop)
        self._requests.append(request)

    def flush(self) -> None:
        """Write what was put so far."""
        writes = self._writes[:]
        self._writes.clear()
        for transport, data in writes:
            if not transport.is_closing():
                transport.write(data)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        requests = self._requests
        self.collecting = True
        try:
            for _ in range(min(len(requests), _AT_ONCE)):
                request = requests.popleft()
                if not request.gone:
                    request.connection.begin(request)
        finally:
            self.collecting = False
            self.flush()
            if requests:
                loop.call_soon(self._serve, loop)
