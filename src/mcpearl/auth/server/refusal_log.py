"""Logs refused requests, at a limited rate."""

import asyncio
import logging

from mcpearl.net.http_server.request import RequestInfo

logger = logging.getLogger("mcpearl.auth")
_EACH_SECOND = 10


class RefusalLog:
    """Logs the first refusals of each second and counts the rest."""

    __slots__ = ("_left", "_more")

    def __init__(self) -> None:
        self._left = _EACH_SECOND
        self._more = 0

    def note(self, reason: str, request: RequestInfo) -> None:
        """Log that a request was refused. The reason must not contain secrets."""
        if self._left == _EACH_SECOND:
            asyncio.get_running_loop().call_later(1.0, self._renew)
        if self._left == 0:
            self._more += 1
            return
        self._left -= 1
        client = request.peer.address
        logger.warning("refused %s: %s", "a client" if client is None else client[0], reason)

    def _renew(self) -> None:
        if self._more:
            logger.warning("refused %d more requests within a second", self._more)
        self._left = _EACH_SECOND
        self._more = 0
