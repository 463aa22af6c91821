"""Whether a server is ready: the event loop and the stores are looked at too."""

import asyncio
import time
from typing import Any

from mcpearl import Server
from mcpearl.stores.errors import StoreUnavailable
from tests.transports.raw_http import Raw, serving
from tests.waiting import eventually


class Away:
    """A store of state that can be taken away."""

    def __init__(self) -> None:
        self.away = False

    async def get(self, owner: str, key: str) -> bytes | None:
        if self.away:
            raise StoreUnavailable("no connection")
        return None

    async def set(self, owner: str, key: str, value: bytes) -> None: ...

    async def delete(self, owner: str, key: str) -> None: ...


async def test_a_store_that_is_away_is_a_reason() -> None:
    store: Any = Away()
    async with serving(Server("x", state_store=store), health="/health") as client:
        assert (await client.request("GET", {}, path="/health/ready")).status == 200
        store.away = True
        answer = await client.request("GET", {}, path="/health/ready")
        assert answer.status == 503
        assert answer.json["reasons"] == {"store of state": "away: StoreUnavailable"}
        assert (await client.request("GET", {}, path="/health/live")).status == 200
        store.away = False
        assert (await client.request("GET", {}, path="/health/ready")).status == 200


async def test_a_part_that_is_down_is_a_reason() -> None:
    app = Server("x", telemetry=False)
    broken = True

    @app.background(name="feed")
    async def feed() -> None:
        if broken:
            raise RuntimeError("no feed")
        await asyncio.Event().wait()

    async with serving(app, health="/health") as client:

        async def says() -> dict[str, str]:
            answer = await client.request("GET", {}, path="/health/ready")
            return {} if answer.status == 200 else answer.json["reasons"]

        async def is_down() -> bool:
            return any("feed" in part for part in await says())

        await eventually(is_down)
        broken = False
        await eventually(lambda: is_ready(client))


async def test_a_part_that_calls_do_not_need_is_not_a_reason() -> None:
    app = Server("x", telemetry=False)
    async with serving(app, health="/health") as client:
        assert app.parts.kill("watchdog of the event loop")

        def state() -> str:
            node = app.tree().find("watchdog of the event loop")
            assert node is not None
            return node.state

        await eventually(lambda: state() == "waiting")
        assert await is_ready(client)
        await eventually(lambda: state() == "running")


async def is_ready(client: Raw) -> bool:
    return (await client.request("GET", {}, path="/health/ready")).status == 200


async def test_a_loop_that_is_held_up_is_a_reason_for_a_while() -> None:
    app = Server("x", blocked_after=None)

    @app.tool
    async def block() -> str:
        time.sleep(1.6)
        return "sorry"

    async with serving(app, health="/health") as client:
        assert (await client.request("GET", {}, path="/health/ready")).status == 200
        await client.call("block")

        async def is_late() -> bool:
            answer = await client.request("GET", {}, path="/health/ready")
            return answer.status == 503 and "held up" in answer.json["reasons"]["loop"]

        await eventually(is_late)

        await eventually(lambda: is_ready(client))
