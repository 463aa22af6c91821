"""How many requests an endpoint answers at once, and how many streams it keeps open."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcpearl.net.http_server.request import RequestInfo
from mcpearl.transports.http_server.callers import Callers
from mcpearl.transports.http_server.gate import Refused, busy


class Admission:
    """Counts what is under way. A request at a bound is refused with 503 and `Retry-After`."""

    __slots__ = ("_callers", "_max_streams", "_streams", "max_requests", "open")

    def __init__(self, max_requests: int, max_streams: int, callers: Callers) -> None:
        self._callers = callers
        self.max_requests = max_requests
        self._max_streams = max_streams
        self.open = 0  # requests being answered; counted, and compared, by the endpoint
        self._streams = 0  # streams that wait for something to be sent

    def usage(self) -> dict[str, tuple[int, int]]:
        """Return how much of each bound is in use, and the bound."""
        return {
            "max_requests": (self.open, self.max_requests),
            "max_streams": (self._streams, self._max_streams),
        }

    def counters(self) -> dict[str, int]:
        """Return how many requests and streams are under way."""
        return {"requests": self.open, "streams": self._streams}

    def too_many(self) -> Refused:
        """Return the refusal of a request beyond `max_requests`."""
        return busy("Too many requests at once", 1, "max_requests")

    def check_caller(self, principal: Any, request: RequestInfo) -> None:
        """Refuse a request of a caller for whom the server holds too much.

        Requests of a session are let through: they may be the ones that release something.
        """
        if b"mcp-session-id" in request.headers:
            return
        account = self._callers.account_of(principal, request)
        if account.is_spent:
            raise busy(account.refusal, 1)

    @contextmanager
    def as_stream(self) -> Iterator[None]:
        """Count a request as a stream while it only waits for something to be sent."""
        if self._streams >= self._max_streams:
            raise busy("Too many streams", 10, "max_streams")
        self._streams += 1
        self.open -= 1
        try:
            yield
        finally:
            self._streams -= 1
            self.open += 1
