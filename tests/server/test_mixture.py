"""Everything at once, in random order, with limits so small that all of them are met."""

import asyncio
import random
import time
from typing import Any

import pytest

from mcpearl import Context, Limits, Server
from tests.server.wire import ERAS, MODERN, Wire, wire


def server() -> Server:
    app = Server(
        "mixed",
        on_duplicate="replace",
        limits=Limits(max_in_flight=3, max_in_flight_hard=6),
        threads=2,
    )

    @app.tool
    async def stepwise(seconds: float, ctx: Context) -> str:
        for step in range(3):
            await asyncio.sleep(seconds)
            await ctx.progress(step + 1)
        return "done"

    @app.tool
    def plain(seconds: float, ctx: Context) -> str:
        time.sleep(seconds)
        ctx.progress(1)
        return "done"

    @app.tool
    async def asks(ctx: Context, seconds: float = 0) -> str:
        return (await ctx.elicit("?")).action

    app.add_resource("a://1", lambda: "x", name="x")
    return app


def answer_questions(client: Wire) -> None:
    while not client._messages.empty():
        message = client._messages.get_nowait()
        if message.get("method") == "elicitation/create":
            client.raw({"jsonrpc": "2.0", "id": message["id"], "result": {"action": "accept"}})


def do_something(client: Wire, app: Server, chance: random.Random, calls: list[Any]) -> None:
    match chance.choices(("call", "cancel", "listen", "change"), (12, 4, 1, 1))[0]:
        case "call":
            tool = chance.choice(("stepwise", "plain", "asks"))
            arguments = {"seconds": chance.choice((0, 0, 0.001, 0.003))}
            params = {"name": tool, "arguments": arguments}
            calls.append(client.request("tools/call", params, token=len(calls)))
        case "cancel" if calls:
            client.cancel(chance.choice(calls))
        case "listen" if client.version == MODERN:
            wanted = {"resourceSubscriptions": ["a://1"], "toolsListChanged": True}
            client.request("subscriptions/listen", {"notifications": wanted})
        case "listen":
            client.request("resources/subscribe", {"uri": "a://1"})
        case "change":
            app.notify_resource_updated("a://1")
            app.add_tool(lambda: 1, name=f"more{len(calls)}")


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("seed", range(10))
async def test_everything_ends_and_nothing_is_left(
    seed: int, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    app = server()
    async with wire(app, version) as client:
        (connection,) = app.core.roster
        calls: list[Any] = []
        for _ in range(150):
            do_something(client, app, chance, calls)
            if chance.random() < 0.1:
                client.transport.pause()
                await asyncio.sleep(0.001)
                client.transport.resume()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
            answer_questions(client)
        async with asyncio.timeout(30):
            while connection._intake.busy() or connection._intake.full:
                await asyncio.sleep(0.002)
                answer_questions(client)
        assert connection.attentive
        assert not connection.end.pending
    assert not app.core.roster
    assert not app.core.roster.unwinding
    assert app.core.subscriptions.counts() == {"uris": 0, "tools": 0, "prompts": 0, "resources": 0}
    assert caplog.text == "", "nothing of this is worth a word in the log"
