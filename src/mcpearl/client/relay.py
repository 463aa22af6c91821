"""Requests that a client makes on behalf of another one: params and results pass undecoded.

A gateway uses this. Unlike the calls of an application, what may have run is never sent again, whatever
the tool says about itself: only the original caller can know.
"""

import asyncio

from msgspec import Raw

from mcpearl.client.connection import RelayedRequest
from mcpearl.client.link import Link
from mcpearl.protocol.errors import ConnectionLost


class Relay:
    """The way for requests of others through one client.

    Args:
        link: The client's way to its server.
        timeout: Seconds for a request without news of it.
        max_timeout: Seconds for a request in all.
        patience: Seconds a request waits for a connection that is being restored.
    """

    __slots__ = ("_link", "_max_timeout", "_patience", "_timeout")

    def __init__(self, link: Link, timeout: float, max_timeout: float, patience: float) -> None:
        self._link = link
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._patience = patience

    async def request(self, request: RelayedRequest) -> Raw:
        """Send a request and return its result.

        Args:
            request: The request.

        Raises:
            ConnectionLost: The connection was lost, or is not there; `maybe_executed` says which.
        """
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
