"""A call without a connection: its peer is whatever takes what the handler says."""

import asyncio
import threading
from typing import Any

import msgspec

from mcpearl import Context, Server
from mcpearl.protocol.events import Call, Caller, EncodedToolResult
from mcpearl.protocol.versions import VERSIONS
from mcpearl.types import CallToolRequestParams, CallToolResult, ElicitResult, decode
from mcpearl.types.base import Result
from mcpearl.types.capabilities import ClientCapabilities, ElicitationCapability


class Notebook:
    """A peer that writes down what it is told, and answers every question."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.share = None
        self.said: list[tuple[str, Any]] = []

    def waits_for(self, call: Call) -> bool:
        return True

    async def notify(self, call: Call, method: str, params: msgspec.Struct) -> None:
        self.said.append((method, params))

    async def ask(self, call: Call, method: str, params: Any, kind: type[Result]) -> Any:
        self.said.append((method, params))
        return ElicitResult(action="accept", content={"name": "Oslo"})

    def stop(self, call: Call) -> None:
        raise AssertionError("a legacy call has no rounds")

    def reserve(self, uri: str) -> None: ...

    def subscribe(self, uri: str) -> None: ...

    def unsubscribe(self, uri: str) -> None: ...


class City(msgspec.Struct):
    name: str


async def test_a_call_runs_without_a_connection() -> None:
    app = Server("detached")

    @app.tool
    async def travel(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.warning("slow")
        answer = await ctx.elicit("Where to?", City)
        return f"to {answer.data.name}"

    peer = Notebook()
    capabilities = ClientCapabilities(elicitation=ElicitationCapability(form={}))
    caller = Caller(VERSIONS["2025-11-25"], None, capabilities)
    params = CallToolRequestParams(name="travel", arguments=msgspec.Raw(b"{}"))
    call = Call(1, "tools/call", params, b"{}", caller, progress_token="t")
    result = await app.core.dispatch(call, Context(call, peer, app.core))
    assert isinstance(result, EncodedToolResult)
    assert decode(CallToolResult, result.body).content[0].text == "to Oslo"
    assert [method for method, _ in peer.said] == [
        "notifications/progress",
        "notifications/message",
        "elicitation/create",
    ]
