"""Adding and removing at run time, and the notifications that follow: few, but never none."""

import asyncio
import threading
from typing import Any

import pytest

from mcpearl import Context, Server
from mcpearl.testing.clock import MovableClock
from tests.server.wire import ERAS, LEGACY, MODERN, Wire, wire

INTERVAL = 0.1


def server() -> Server:
    app = Server("changing")
    app.add_tool(lambda: 1, name="tool")
    app.add_resource("a://1", lambda: "x", name="resource")
    app.add_prompt(lambda: "x", name="prompt")
    return app


def change(app: Server, kind: str, number: int = 0) -> None:
    if kind == "tools":
        app.add_tool(lambda: 1, name=f"more{number}")
    elif kind == "prompts":
        app.add_prompt(lambda: "x", name=f"more{number}")
    elif kind == "resources":
        app.add_resource(f"more://{number}", lambda: "x", name="more")
    else:
        app.add_resource(f"more{number}://{{key}}", lambda key: "x", name="more")


async def follow(client: Wire, *kinds: str) -> None:
    """In the modern era one has to ask."""
    if client.version == MODERN:
        wanted = {f"{kind}ListChanged": True for kind in kinds}
        client.request("subscriptions/listen", {"notifications": wanted})
        assert (await client.next())["method"] == "notifications/subscriptions/acknowledged"


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("kind", ["tools", "prompts", "resources", "templates"])
async def test_a_change_is_told(kind: str, version: str) -> None:
    app = server()
    listed = "resources" if kind == "templates" else kind
    async with wire(app, version) as client:
        await follow(client, "tools", "prompts", "resources")
        change(app, kind)
        assert (await client.next())["method"] == f"notifications/{listed}/list_changed"


@pytest.mark.parametrize("version", ERAS)
async def test_many_changes_are_told_once_at_once_and_once_later(
    version: str, clock: MovableClock
) -> None:
    app = server()
    async with wire(app, version) as client:
        await follow(client, "tools", "prompts")
        change(app, "prompts")
        for number in range(100):
            change(app, "tools", number)
        assert [(await client.next())["method"] for _ in range(2)] == [
            "notifications/prompts/list_changed",
            "notifications/tools/list_changed",
        ]
        await clock.advance(2 * INTERVAL)
        assert [message["method"] for message in await client.silence()] == [
            "notifications/tools/list_changed"
        ]
        await clock.advance(10 * INTERVAL)
        assert await client.silence() == [], "everything has been told"


@pytest.mark.parametrize("version", ERAS)
async def test_the_last_change_is_never_lost(version: str, clock: MovableClock) -> None:
    """A client that asks after each notification ends up with the final list."""
    app = server()
    async with wire(app, version) as client:
        await follow(client, "tools")

        async def keep_changing() -> None:
            for number in range(40):
                change(app, "tools", number)
                await clock.advance(INTERVAL / 10)

        loop = asyncio.get_running_loop()
        began = loop.time()
        changing = asyncio.create_task(keep_changing())
        told, known = 0, 0
        while known < 41:
            assert (await client.next())["method"] == "notifications/tools/list_changed"
            told += 1
            known = len((await client.ask("tools/list"))["result"]["tools"])
        await changing
        assert told <= (loop.time() - began) / INTERVAL + 2


async def test_removing_is_a_change_and_removing_nothing_is_none() -> None:
    app = server()
    async with wire(app, LEGACY) as client:
        assert not app.remove_tool("nothing")
        assert not app.remove_resource("nothing://")
        assert not app.remove_prompt("nothing")
        assert await client.silence() == []
        assert app.remove_tool("tool")
        assert (await client.next())["method"] == "notifications/tools/list_changed"
        assert app.remove_resource("a://1")
        assert (await client.next())["method"] == "notifications/resources/list_changed"
        assert app.remove_prompt("prompt")
        assert (await client.next())["method"] == "notifications/prompts/list_changed"


@pytest.mark.parametrize("version", ERAS)
async def test_a_list_that_became_empty_is_still_a_list(version: str) -> None:
    app = server()
    async with wire(app, version) as client:
        app.remove_tool("tool")
        assert (await client.ask("tools/list"))["result"]["tools"] == []
        assert (await client.call("tool"))["error"]["code"] == -32602


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("plain", [True, False])
async def test_a_tool_may_add_tools(plain: bool, version: str) -> None:
    app = server()

    def grow() -> str:
        app.add_tool(lambda: "new", name="new")
        return "grown"

    async def grow_async() -> str:
        return grow()

    app.add_tool(grow if plain else grow_async, name="grow")
    async with wire(app, version) as client:
        await follow(client, "tools")
        id = client.request("tools/call", {"name": "grow"})
        await client.answer_to(id)
        assert (await client.next())["method"] == "notifications/tools/list_changed"
        assert "result" in await client.call("new")


async def test_changes_from_many_threads() -> None:
    app = server()

    def add(first: int) -> None:
        for number in range(first, first + 200):
            change(app, "tools", number)
            app.remove_tool(f"more{number}") if number % 2 else None

    async with wire(app, LEGACY) as client:
        threads = [threading.Thread(target=add, args=(n * 1000,)) for n in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert "result" in await client.ask("tools/list")
            await asyncio.sleep(0)
        seen: list[Any] = []
        params: dict[str, Any] = {}
        while True:
            result = (await client.ask("tools/list", params))["result"]
            seen += [tool["name"] for tool in result["tools"]]
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        assert len(seen) == len(set(seen)) == 401


def test_a_server_tells_of_changes_on_a_second_loop_too() -> None:
    """A loop that ends in the middle of the interval takes nothing with it."""
    app = server()

    async def changed_and_left() -> None:
        async with wire(app, LEGACY) as client:
            change(app, "tools", 1)
            change(app, "tools", 2)
            assert (await client.next())["method"] == "notifications/tools/list_changed"

    asyncio.run(changed_and_left())
    asyncio.run(changed_and_left())


async def test_only_kinds_that_were_announced_are_told() -> None:
    app = Server("tools only")
    app.add_tool(lambda: 1, name="tool")
    async with wire(app, LEGACY) as client:
        change(app, "prompts")
        assert await client.silence() == []


async def test_the_order_is_that_of_adding_in_every_run() -> None:
    app = Server("ordered")
    for name in ("b", "a", "c"):
        app.add_tool(lambda: 1, name=name)

    @app.tool(name="b")
    async def again(ctx: Context) -> int:
        return 2

    async with wire(app) as client:
        for _ in range(3):
            tools = (await client.ask("tools/list"))["result"]["tools"]
            assert [tool["name"] for tool in tools] == ["b", "a", "c"]
