"""What a client tells its transport of each message, against the message itself."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Struct

from mcpearl import Client, Context, Server
from mcpearl.protocol.errors import RequestTimeout
from mcpearl.transports.memory import MemoryTransport, memory_pair
from mcpearl.transports.transport import Outgoing, Transport
from mcpearl.types.elicitation import ElicitResult


class Sure(Struct):
    value: bool


Sent = list[tuple[dict[str, Any], Outgoing]]


class Recording(Transport):
    """The client's side of a pair, which keeps what is sent."""

    keeps_alive = True

    def __init__(self, inner: MemoryTransport) -> None:
        self.sent: Sent = []
        self.open, self.close = inner.open, inner.close
        self.flush, self.pause, self.resume = inner.flush, inner.pause, inner.resume
        self._inner = inner

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        assert about is not None
        self.sent.append((json.loads(message), about))
        self._inner.send(message)


def an_app() -> Server:
    app = Server("a server")

    @app.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit("Sure?", Sure)
        return "asked"

    @app.tool
    async def wait() -> None:
        await asyncio.sleep(60)

    return app


async def talk(version: str) -> Sent:
    """Send each kind of message once."""
    near, far = memory_pair()
    recording, app = Recording(near), an_app()

    async def answer(params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": True})

    async with app.running():
        await app.connect(far)
        async with Client(recording, protocol=version, elicitation=answer) as client:
            await client.call_tool("ask", raise_on_error=True)
            with pytest.raises(RequestTimeout):
                await client.call_tool("wait", timeout=0.05)
    return recording.sent


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_it_agrees_with_the_message(version: str) -> None:
    sent = await talk(version)
    methods = [about.method for _, about in sent]
    assert "tools/call" in methods
    assert "notifications/cancelled" in methods
    for message, about in sent:
        assert about.method == message.get("method")
        assert about.id == (message.get("id") if "method" in message else None)
        assert about.modern is (version == "2026-07-28")
        assert about.version == (None if about.method == "initialize" else version)
        params = message.get("params", {})
        assert about.cancels == params.get("requestId")
        if about.method == "tools/call":
            assert about.params.name == params["name"]


async def test_an_answer_has_neither_method_nor_id() -> None:
    answers = [about for message, about in await talk("2025-11-25") if "method" not in message]
    assert answers == [Outgoing(version="2025-11-25")]
