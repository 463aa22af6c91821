"""Logs the requests that an endpoint refuses, with the reason, at a limited rate."""

import logging

from mcpearl.net.http_server.request import PeerInfo, RequestInfo
from mcpearl.runtime.limited_log import LimitedLog
from mcpearl.transports.http_server.gate import Refused

logger = logging.getLogger("mcpearl.http")

_LONGEST = 128  # characters of a path that are logged
_FOR_OPERATORS = (403, 421, 503)  # an operator may have to change a setting
_USUAL = (400, 401, 403, 404, 405, 406, 408, 413, 415, 421, 431, 501, 503, 504)  # counted from 0
_BY_GATE = 401  # logged where the token is checked


class RefusedRequests:
    """Warns of refusals that a setting may cause; logs others, which only concern the client, as INFO."""

    __slots__ = ("_counts", "_others", "_warnings")

    def __init__(self) -> None:
        summary = "refused %d more requests within a second"
        self._warnings = LimitedLog(logger, logging.WARNING, summary)
        self._others = LimitedLog(logger, logging.INFO, summary)
        self._counts = dict.fromkeys(_USUAL, 0)  # by HTTP status

    def counters(self) -> dict[str, int]:
        """Return how many were refused, by status."""
        return {f"refused_{status}": count for status, count in self._counts.items()}

    def note(self, request: RequestInfo, refused: Refused) -> None:
        """Count that a request was refused, and log it."""
        self._counts[refused.status] = self._counts.get(refused.status, 0) + 1
        if refused.status == _BY_GATE:
            return
        self._log_of(refused.status).note(
            "refused %s %a of %s with %d: %s",
            request.method,
            (request.root + request.path)[:_LONGEST],
            _client(request.peer),
            refused.status,
            refused,
        )

    def note_unread(self, peer: PeerInfo, status: int, reason: str) -> None:
        """Count and log the refusal of something that was not a request, or was not read to its end."""
        self._counts[status] = self._counts.get(status, 0) + 1
        self._log_of(status).note("refused what %s sent with %d: %s", _client(peer), status, reason)

    def _log_of(self, status: int) -> LimitedLog:
        return self._warnings if status in _FOR_OPERATORS else self._others


def _client(peer: PeerInfo) -> str:
    return "a client" if peer.address is None else peer.address[0]
