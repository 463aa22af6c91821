"""The page of metrics stays as large as the server's configuration makes it, whatever clients do."""

import re
from typing import get_args

import pytest

from mcpearl import Client, Isolate, Server
from mcpearl.runtime.observer import Bound
from mcpearl.server import measuring
from mcpearl.telemetry.metrics import OTHER
from mcpearl.telemetry.prometheus import render
from tests.server.wire import ERAS
from tests.transports.raw_http import serving
from tests.waiting import eventually


async def parts_of(app: Server) -> set[str]:
    """The values of the label `part` on the page of a server."""
    page = (await render(app.measure().snapshot())).decode()
    return set(re.findall(r'part="([^"]*)"', page))


@pytest.mark.parametrize("era", ERAS)
async def test_subscriptions_through_a_mount_have_no_series(era: str) -> None:
    behind = Server("behind", telemetry=False)

    @behind.resource("note://{name}")
    def note(name: str) -> str:
        return name

    async with behind.serving("http", port=0) as url:
        app = Server("front", telemetry=False)
        app.mount("far", url)
        app.measure()
        async with Client(app, protocol=era, telemetry=False) as client:
            await client.subscribe("note://1")
            before = await parts_of(app)
            assert f"upstreams/far/{url}" in before
            for number in range(2, 6):
                await client.subscribe(f"note://{number}")
            await eventually(lambda: "subscription 5" in str(app.tree()))
            assert await parts_of(app) == before


async def test_isolated_processes_have_no_series() -> None:
    app = Server("apart", telemetry=False)

    @app.tool(isolate=Isolate(processes=2))
    def work() -> str:
        return "done"

    app.measure()
    async with Client(app, telemetry=False) as client:
        await client.call_tool("work")
        assert "process " in str(app.tree())
        parts = await parts_of(app)
        assert any(part.startswith("isolat") for part in parts), "the pool has its series"
        assert not [part for part in parts if "process " in part]


async def test_parts_beyond_a_number_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MAX_PARTS", 1)
    app = Server("small", telemetry=False)
    app.measure()
    async with Client(app, telemetry=False):
        assert len(list(app.tree().walk())) > 1
        assert await parts_of(app) == {"bus", OTHER}


async def test_counters_of_rare_events_begin_at_0() -> None:
    """`increase()` sees the first event only of a series that was there before it."""
    app = Server("quiet", telemetry=False)
    async with serving(app, metrics="/metrics") as client:
        page = (await client.request("GET", {}, path="/metrics")).body.decode()
    for bound in get_args(Bound):
        assert f'mcpearl_bounds_reached_total{{bound="{bound}"}} 0\n' in page
    assert "mcpearl_loop_blocked_total 0\n" in page
    assert "mcpearl_loop_blocked_seconds_total 0\n" in page
    for status in (400, 401, 403, 503):
        assert f'mcpearl_http_refused_total{{status="{status}"}} 0\n' in page
