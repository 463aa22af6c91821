"""Requests that a client makes on behalf of another one: params and results pass undecoded.

A gateway uses this. Unlike the calls of an application, what may have run is never sent again, whatever
the tool says about itself: only the original caller can know.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from mcpearl.client.link import Link
from mcpearl.client.progress import ProgressCallback
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.types.base import RequestId

if TYPE_CHECKING:
    from mcpearl.protocol.modern import Presentation


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

    async def request(
        self,
        method: str,
        params: Struct,
        body: bytes,
        *,
        on_progress: ProgressCallback | None = None,
        presentation: "Presentation | None" = None,
        meta: dict[str, Any] | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
    ) -> Raw:
        """Send a request and return its result.

        Args:
            method: The method.
            params: The params that `body` encodes.
            body: The encoded params, without `_meta`.
            on_progress: Called with each progress notification.
            presentation: The client the request is made for.
            meta: Further members of `_meta`.
            on_sent: Called with the id under which the request is sent.

        Raises:
            ConnectionLost: The connection was lost, or is not there; `maybe_executed` says which.
        """
        connection = self._link.connection
        if connection is None:
            connection = await self._link.ready(self._until())
        while True:
            try:
                return await connection.relay(
                    method,
                    params,
                    body,
                    timeout=self._timeout,
                    max_timeout=self._max_timeout,
                    on_progress=on_progress,
                    presentation=presentation,
                    meta=meta,
                    on_sent=on_sent,
                )
            except ConnectionLost as lost:
                if lost.maybe_executed or self._link.reconnect is None:
                    raise
                self._link.doubt(connection, lost)
                connection = await self._link.ready(self._until())

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._patience
