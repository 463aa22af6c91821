"""A client made of raw messages: what exactly goes over the wire, in memory."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcpearl import Server
from mcpearl.auth import Principal
from mcpearl.protocol.framing import Frame
from mcpearl.transports.memory import MemoryTransport, memory_pair

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
ERAS = (LEGACY, MODERN)
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY, MODERN)
EVERYTHING: dict[str, Any] = {
    "sampling": {},
    "roots": {},
    "elicitation": {"form": {}, "url": {}},
}
PREFIX = "io.modelcontextprotocol/"
HANGS = 30.0  # seconds after which a test that waits gives up


def meta(capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The `_meta` of a modern request."""
    return {
        f"{PREFIX}protocolVersion": MODERN,
        f"{PREFIX}clientInfo": {"name": "wire", "version": "1"},
        f"{PREFIX}clientCapabilities": EVERYTHING if capabilities is None else capabilities,
        **more,
    }


class Wire:
    """One end of a memory pair, as a person with a debugger would use it."""

    def __init__(self, transport: MemoryTransport, version: str) -> None:
        self.transport = transport
        self.version = version
        self.capabilities = EVERYTHING
        self.lost_reason: Any = "not lost"
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._kept: list[dict[str, Any]] = []  # read while waiting for something else
        self._ids = itertools.count(1000)

    # The receiver's side

    def received(self, frames: list[Frame]) -> None:
        for frame in frames:
            assert isinstance(frame, bytes)
            self._messages.put_nowait(json.loads(frame))

    def ended(self) -> None: ...

    def lost(self, reason: Exception | None) -> None:
        self.lost_reason = reason

    def writable(self, flowing: bool) -> None: ...

    # Sending

    def raw(self, message: Any) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.transport.send(data)

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        id: Any = None,
        token: Any = None,
        **more_meta: Any,
    ) -> Any:
        """Send a request and give its id."""
        id = next(self._ids) if id is None else id
        params = dict(params or {})
        if token is not None:
            more_meta["progressToken"] = token
        if self.version == MODERN:
            params["_meta"] = meta(self.capabilities, **more_meta)
        elif more_meta:
            params["_meta"] = more_meta
        self.raw({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.raw({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def cancel(self, id: Any) -> None:
        self.notify("notifications/cancelled", {"requestId": id})

    # Receiving

    async def next(self) -> dict[str, Any]:
        """The next message, whatever it is."""
        if self._kept:
            return self._kept.pop(0)
        async with asyncio.timeout(HANGS):
            return await self._messages.get()

    async def answer_to(self, id: Any) -> dict[str, Any]:
        """The answer to a request; what comes before it is kept for `next`."""
        kept: list[dict[str, Any]] = []
        while True:
            message = await self.next()
            if message.get("id") == id and "method" not in message:
                self._kept = kept + self._kept
                return message
            kept.append(message)

    async def ask(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """Send a request, wait, and give its answer."""
        return await self.answer_to(self.request(method, params, **more))

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        """Call a tool and give the whole answer."""
        return await self.ask("tools/call", {"name": name, "arguments": arguments or {}}, **more)

    async def silence(self) -> list[dict[str, Any]]:
        """What comes unasked until the server has gone round its loop and answered once more."""
        for _ in range(5):
            await asyncio.sleep(0)
        method = "server/discover" if self.version == MODERN else "ping"
        await self.ask(method)
        kept, self._kept = self._kept, []
        return kept


@asynccontextmanager
async def wire(
    app: Server,
    version: str = MODERN,
    capabilities: dict[str, Any] | None = None,
    principal: Principal | None = None,
) -> AsyncIterator[Wire]:
    """Connect to a server; in a legacy version the session is ready."""
    async with app.running():
        transport, other = memory_pair()
        connection = await app.connect(other, principal)
        client = Wire(transport, version)
        if capabilities is not None:
            client.capabilities = capabilities
        await transport.open(client)
        if version != MODERN:
            await client.ask(
                "initialize",
                {
                    "protocolVersion": version,
                    "capabilities": client.capabilities,
                    "clientInfo": {"name": "wire", "version": "1"},
                },
            )
            client.notify("notifications/initialized")
        try:
            yield client
        finally:
            await transport.close()
            assert connection.closed


def text_of(answer: dict[str, Any]) -> str:
    """The text of a tool's answer."""
    return "\n".join(block.get("text", "") for block in answer["result"]["content"])
