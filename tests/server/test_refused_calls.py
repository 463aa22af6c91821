"""Calls that are refused at a limit: each kind is logged with its reason and counted by its name."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

from mcpearl import Client, Isolate, McpError, RateLimit, Server
from mcpearl.telemetry.prometheus import render
from tests.waiting import turns

CALLS = 8  # more than any of the limits below allows


def rated_server(folder: Path) -> Server:
    app = Server("limited", telemetry=False, rate=RateLimit(4, per=1000))

    @app.tool
    async def work() -> str:
        return "done"

    return app


def rated_tool(folder: Path) -> Server:
    app = Server("limited", telemetry=False)

    @app.tool(rate=RateLimit(1, per=1000))
    async def work() -> str:
        return "done"

    return app


def narrow_tool(folder: Path) -> Server:
    app = Server("limited", telemetry=False)

    @app.tool(concurrency=1, queue=0)
    async def work() -> str:
        await turns()  # in which the other calls come
        return "done"

    return app


def narrow_pool(folder: Path) -> Server:
    app = Server("limited", telemetry=False)

    @app.tool(isolate=Isolate(processes=1, queue=0))
    def work() -> str:
        while not (folder / "refused").exists():
            time.sleep(0.001)
        return "done"

    return app


LIMITS = {
    "Server.rate": rated_server,
    "tool.rate": rated_tool,
    "tool.concurrency": narrow_tool,
    "Isolate.queue": narrow_pool,
}


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("bound", LIMITS)
async def test_a_refused_call_is_logged_and_counted(
    bound: str, mounted: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, "mcpearl.server")
    app, name = LIMITS[bound](tmp_path), "work"
    if mounted:
        inner, app, name = app, Server("outer", telemetry=False), "inner__work"
        app.mount("inner", inner)
    measuring = app.measure()
    async with Client(app, telemetry=False) as client:
        await client.tools()  # so that only calls of the tool are refused
        calls = [asyncio.ensure_future(client.call_tool(name)) for _ in range(CALLS)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        (tmp_path / "refused").touch()
        answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, McpError)]
    assert refused
    logged = [text for text in caplog.messages if "refused a call" in text]
    assert logged == [f"refused a call ({bound}): {error.message}" for error in refused]
    page = (await render(measuring.snapshot())).decode()
    assert f'mcpearl_bounds_reached_total{{bound="{bound}"}} {len(refused)}\n' in page
