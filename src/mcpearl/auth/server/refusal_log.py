"""Logs refused requests, at a limited rate."""

import logging

from mcpearl.net.http_server.request import RequestInfo
from mcpearl.runtime.limited_log import LimitedLog


class RefusalLog:
    """Logs the first refusals of each second and counts the rest."""

    __slots__ = ("_log",)

    def __init__(self) -> None:
        summary = "refused %d more requests within a second"
        self._log = LimitedLog(logging.getLogger("mcpearl.auth"), logging.WARNING, summary)

    def note(self, reason: str, request: RequestInfo) -> None:
        """Log that a request was refused. The reason must not contain secrets."""
        client = request.peer.address
        self._log.note("refused %s: %s", "a client" if client is None else client[0], reason)
