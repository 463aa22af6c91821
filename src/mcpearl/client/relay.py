"""Requests that a client makes on behalf of another client: params and results pass undecoded.

A gateway uses this. Unlike a call of the application, a request that may have run is never sent again,
whatever the tool's hints say: only the original caller can decide that.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec import Raw

from mcpearl.client.connection import RelayedRequest
from mcpearl.client.link import Link
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.runtime import tracing


class Relay:
    """Sends requests of other clients through one client.

    Args:
        link: The client's link to its server.
        timeout: Seconds for a request; progress restarts them.
        max_timeout: Seconds for a request in all.
        patience: Seconds a request waits for a connection that is being restored.
    """

    __slots__ = ("_link", "_max_timeout", "_patience", "_timeout")

    def __init__(self, link: Link, timeout: float, max_timeout: float, patience: float) -> None:
        self._link = link
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._patience = patience

    def request(self, request: RelayedRequest) -> Coroutine[Any, Any, Raw]:
        """Send a request, as a part of the current trace, and return its result.

        Args:
            request: The request.

        Raises:
            ConnectionLost: The connection was lost, or there was none; `maybe_executed` says whether
                the request may have run.
        """
        request.meta = tracing.carried(request.meta)
        return self._send(request)

    async def _send(self, request: RelayedRequest) -> Raw:
        connection = self._link.connection
        if connection is None:
            connection = await self._link.ready(self._until())
        while True:
            try:
                return await connection.relay(request, self._timeout, self._max_timeout)
            except ConnectionLost as lost:
                if lost.maybe_executed or self._link.reconnect is None:
                    raise
                self._link.doubt(connection, lost)
                connection = await self._link.ready(self._until())

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._patience
