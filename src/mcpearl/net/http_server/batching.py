"""Requests that arrive together are served together, and their responses written together.

The loop reads one connection after the other. Requests read in the same iteration are served back to
back afterwards, which keeps the processor's caches warm. Their responses are written once all are
served: the first write wakes a sleeping client, and the others find it awake. A lone connection does
not wait for the end of the iteration.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpearl.net.http_server.http1_request import Http1Request
    from mcpearl.runtime.congestion import Congestion

_data = itemgetter(1)  # of a write
_AT_ONCE = 64  # requests served before the loop looks for other work


class IterationBatch:
    """The requests of one loop iteration, then the writes of their responses."""

    in_turns = False
    """Whether a request that waited behind another of its connection must be added here, too."""

    __slots__ = ("_requests", "_writes", "collecting", "put", "written")

    def __init__(self) -> None:
        self.collecting = False  # while requests are served: their writes are `put` here
        self._requests: deque[Http1Request] = deque()
        self._writes: list[tuple[asyncio.Transport, bytes]] = []
        self.put = self._writes.append
        """Write later, in order. Only while `collecting`."""
        self.written = 0
        """Bytes that were put and written."""

    def add(self, request: "Http1Request", loop: asyncio.AbstractEventLoop) -> None:
        """Serve a request together with the others of this iteration."""
        if not self._requests:
            loop.call_soon(self._serve, loop)
        self._requests.append(request)

    def flush(self) -> None:
        """Write what was put so far."""
        writes = self._writes[:]
        self._writes.clear()
        self.written += sum(map(len, map(_data, writes)))
        for transport, data in writes:
            if transport.is_closing():
                self.written -= len(data)
            else:
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


class CongestedBatch(IterationBatch):
    """A batch until a turn of the loop takes too long. Then requests wait in lines, served in turns.

    Args:
        congestion: Holds the lines, one for each client address.
        turn_away: Refuses a request that waited too long, unless it returns False.
    """

    in_turns = True

    __slots__ = ("_congestion", "_turn_away")

    def __init__(
        self, congestion: "Congestion", turn_away: "Callable[[Http1Request], bool] | None"
    ) -> None:
        super().__init__()
        self._congestion = congestion
        self._turn_away = turn_away

    def add(self, request: "Http1Request", loop: asyncio.AbstractEventLoop) -> None:
        """Serve a request together with the others of this iteration, or when it is its client's turn."""
        if self._congestion.crowded:
            self._wait(request, None)
        else:
            super().add(request, loop)

    def _wait(self, request: "Http1Request", since: float | None) -> None:
        self._congestion.put(request.connection.account, self._begin, request, since)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        requests, congestion = self._requests, self._congestion
        self.collecting = True
        try:
            while requests and not congestion.crowded:
                request = requests.popleft()
                if not request.gone:
                    request.connection.begin(request)
        finally:
            self.collecting = False
            self.flush()
            since = congestion.turn
            while requests:
                self._wait(requests.popleft(), since)

    def _begin(self, request: "Http1Request") -> None:
        if not self.collecting:
            self.collecting = True
            self._congestion.at_end(self._end)
        if request.gone:
            return
        turn_away = self._turn_away
        if self._congestion.refusing and turn_away is not None and turn_away(request):
            return
        request.connection.begin(request)

    def _end(self) -> None:
        self.collecting = False
        self.flush()
