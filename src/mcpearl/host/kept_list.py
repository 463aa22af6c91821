"""One list of one server, such as its tools: read once, and again after it changed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from mcpearl.client.client import Client
from mcpearl.host.records import OfferKind
from mcpearl.protocol.errors import CapabilityMissing, ConnectionLost, LimitReached, McpError
from mcpearl.runtime import clock
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND

UNANNOUNCED = 60.0  # seconds for which a list is kept if the server does not announce changes


class KeptList:
    """One list of a server, kept until it changes.

    Args:
        kind: What is listed.
        limit: How many items there may be.
        made: Turns the server's items into those that the host shows; called after each reading.
    """

    def __init__(self, kind: OfferKind, limit: int, made: Callable[[list[Any]], list[Any]]) -> None:
        self.kind = kind
        self._limit = limit
        self._made = made
        self._items: list[Any] | None = None
        self._expires = 0.0
        self._reading: asyncio.Task[list[Any]] | None = None
        self._stale = False  # changed since the reading under way began

    def items(self) -> list[Any] | None:
        """Return the list as it is now; None if it has to be read."""
        return self._items if clock.monotonic() < self._expires else None

    def last(self) -> list[Any]:
        """Return the list as it was last read, even if it has changed since."""
        return self._items or []

    def changed(self) -> None:
        """Note that the list has changed."""
        self._expires = 0.0
        self._stale = True

    async def read(self, client: Client, *, announced: bool, timeout: float) -> list[Any]:
        """Return the list; read it from the server unless it is known. Several callers share one reading.

        Args:
            client: The client of the server.
            announced: Whether the server announces changes.
            timeout: Seconds for reading all of it.
        """
        known = self.items()
        if known is not None:
            return known
        if self._reading is None or self._reading.done():
            work = self._read(client, announced, timeout)
            self._reading = asyncio.get_running_loop().create_task(work)
            self._reading.add_done_callback(_heard)
        reading = self._reading
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ConnectionLost("the connection was lost") from None

    async def _read(self, client: Client, announced: bool, timeout: float) -> list[Any]:
        self._stale = False
        try:
            async with asyncio.timeout(timeout):
                items = await self._all(client)
        except TimeoutError:
            raise LimitReached(f"its {self.kind} were not listed within {timeout:g} s") from None
        self._items = self._made(items)
        if not self._stale:
            self._expires = float("inf") if announced else clock.monotonic() + UNANNOUNCED
        return self._items

    async def _all(self, client: Client) -> list[Any]:
        if not _offered(client.server_capabilities, self.kind):
            return []
        source: AsyncIterator[Any] = getattr(client, self.kind)()
        items: list[Any] = []
        try:
            async for item in source:
                items.append(item)
                if len(items) > self._limit:
                    raise LimitReached(
                        f"it has more than {self._limit} {self.kind}; raise `Host(max_offers=…)`"
                    )
        except CapabilityMissing:
            return []
        except McpError as error:
            # Many servers that have resources do not implement templates.
            if error.code != METHOD_NOT_FOUND or self.kind != "resource_templates":
                raise
        return items

    async def close(self) -> None:
        """Forget the list, and end the reading under way."""
        self._items, self._expires = None, 0.0
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])


def _offered(capabilities: ServerCapabilities, kind: OfferKind) -> bool:
    match kind:
        case "tools":
            return capabilities.tools is not None
        case "prompts":
            return capabilities.prompts is not None
        case _:
            return capabilities.resources is not None


def _heard(reading: "asyncio.Task[list[Any]]") -> None:
    """Retrieve a failure that no caller waits for any more, so that asyncio does not log it."""
    if not reading.cancelled():
        reading.exception()
