"""Whether a server is ready: the event loop and the stores are looked at too."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Receipts, Server
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.testing.clock import MovableClock
from tests.receipts.test_recording import full_disk
from tests.redis_server import running
from tests.telemetry.test_metrics import read, value
from tests.transports.raw_http import Raw, serving
from tests.waiting import eventually, turns


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


async def test_a_redis_that_is_killed_is_a_reason_until_it_is_back() -> None:
    """What the page of metrics says of the store agrees with it."""
    with running("redis") as redis:
        app = Server("x", store=redis.url, telemetry=False)
        async with serving(app, health="/health", metrics="/metrics") as client:

            async def up() -> float:
                samples = read((await client.request("GET", {}, path="/metrics")).body)
                assert value(samples, "mcpearl_ready") == value(samples, "mcpearl_store_up")
                return value(samples, "mcpearl_store_up")

            async def is_up() -> bool:
                return await is_ready(client) and await up() == 1

            async def is_away() -> bool:
                answer = await client.request("GET", {}, path="/health/ready")
                told = any("store" in name for name in answer.json.get("reasons", ()))
                return answer.status == 503 and told and await up() == 0

            await eventually(is_up)
            for _ in range(2):
                redis.kill()
                await eventually(is_away)
                assert (await client.request("GET", {}, path="/health/live")).status == 200
                redis.start()
                await eventually(is_up)


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_check_that_hangs_is_a_reason_and_takes_nothing_from_calls(
    clock: MovableClock, kind: str
) -> None:
    app, hangs, ran = Server("x", telemetry=False), threading.Event(), list[str]()

    @app.tool
    def work() -> str:
        return "done"

    def plain() -> None:
        ran.append("plain")
        hangs.wait(60)

    async def forever() -> None:
        ran.append("async")
        if not hangs.is_set():
            await asyncio.Event().wait()

    app.health(plain if kind == "plain" else forever)
    async with serving(app, health="/health") as client:
        try:
            for _ in range(3):
                asked = [
                    asyncio.ensure_future(client.request("GET", {}, path="/health/ready"))
                    for _ in range(20)
                ]
                await turns()
                await clock.advance(5)
                for answer in await asyncio.gather(*asked):
                    assert answer.status == 503
                    (reason,) = answer.json["reasons"].values()
                    assert reason == "no answer within 5 s"
            assert (await client.request("GET", {}, path="/health/live")).status == 200
            assert (await client.call("work")).json["result"]["content"][0]["text"] == "done"
            # A thread cannot be cancelled, so that one run is all there is; a coroutine can.
            assert len(ran) == (1 if kind == "plain" else 3)
        finally:
            hangs.set()
        await eventually(lambda: is_ready(client))


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


async def test_a_loop_that_is_held_up_is_a_reason_for_a_while(clock: MovableClock) -> None:
    app = Server("x", blocked_after=None)

    @app.tool
    async def block() -> str:
        clock.move(1.6)  # as if it had computed for so long
        return "sorry"

    async with serving(app, health="/health") as client:
        assert (await client.request("GET", {}, path="/health/ready")).status == 200
        await client.call("block")

        async def is_late() -> bool:
            answer = await client.request("GET", {}, path="/health/ready")
            return answer.status == 503 and "held up" in answer.json["reasons"]["loop"]

        await eventually(is_late)
        await clock.advance(10)
        await eventually(lambda: is_ready(client))


@pytest.mark.parametrize("policy", ["refuse", "continue"])
async def test_receipts_that_cannot_be_written_are_a_reason_if_calls_are_refused(
    tmp_path: Path, policy: Any
) -> None:
    folder = tmp_path / "receipts"
    app = Server("x", receipts=Receipts(folder, on_full=policy, sign_every=0.1), telemetry=False)

    @app.tool
    async def work() -> str:
        return "done"

    async with serving(app, health="/health", metrics="/metrics") as client:

        async def readiness() -> tuple[int, Any]:
            before = await client.request("GET", {}, path="/health/ready")
            samples = read((await client.request("GET", {}, path="/metrics")).body)
            answer = await client.request("GET", {}, path="/health/ready")
            if before.status != answer.status:  # it has changed meanwhile
                return await readiness()
            assert value(samples, "mcpearl_ready") == (answer.status == 200)
            return answer.status, answer.json.get("reasons")

        async def is_ready() -> bool:
            return await readiness() == (200, None)

        await client.call("work")
        await eventually(lambda: (folder / "checkpoint").exists())
        assert await is_ready()
        async with full_disk(app, folder):
            await client.call("work")
            await eventually(lambda: app.core.recorder._full)
            if policy == "refuse":
                reason = "the log of the server cannot be written"
                assert await readiness() == (503, {"receipts": reason})
            else:
                assert await is_ready()
        await eventually(is_ready)
