"""Cards of the live page in a real Chromium, and what a hostile server puts into the page."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcpearl import Client, Context, Server
from mcpearl.gateway.gateway import Gateway
from tests.console.browser import Browser
from tests.console.page import KEY, served

SCRIPT = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the server more often than people need it."""
    monkeypatch.setattr("mcpearl.console.watching.EVERY", 0.2)


@asynccontextmanager
async def opened(browser: Browser, app: Server) -> AsyncIterator[str]:
    """Serve an application, open its console, and yield the address of its endpoint."""
    async with served(app, payloads=True) as base:
        await browser.open(f"{base}#key={KEY}")
        await browser.wait("#phase.good")
        yield base.removesuffix("/console") + "/mcp"
        assert await browser.evaluate("window.hurt") is None
        assert await browser.problems() == []


def hostile() -> Server:
    """Make a server whose progress, task messages and addresses would run something if they could."""
    app = Server("hostile")

    @app.tool(task=True)
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 2, SCRIPT)
        await asyncio.Event().wait()
        return "never"

    @app.tool
    async def step(ctx: Context) -> str:
        await ctx.progress(1, 2, SCRIPT)
        await asyncio.Event().wait()
        return "never"

    @app.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url(SCRIPT, "javascript:window.hurt=1")).action

    return app


async def test_tasks_are_shown_and_one_is_cancelled_with_the_mouse(browser: Browser):
    async with opened(browser, hostile()) as url, Client(url) as other:
        task = await other.start_task("work")
        await browser.click("#tab-live")
        await browser.wait("[aria-label='Tasks'] td >> text=work")
        await browser.wait("[aria-label='Tasks'] .chip >> text=working: 1")
        await browser.wait("[aria-label='Tasks'] td >> text=onerror=window.hurt")
        assert SCRIPT in await browser.text("[aria-label='Tasks']")
        await browser.click("#tab-try")
        await browser.click("[data-name=work]")
        await browser.click("#as-task")
        await browser.click("button[type=submit]")
        await browser.wait("button:has-text('Cancel the task')")
        await browser.click("#tab-live")
        await browser.wait("[aria-label='Tasks'] .chip >> text=working: 2")
        await browser.click("#tab-try")
        await browser.click("button:has-text('Cancel the task')")
        await browser.click("#tab-live")
        await browser.wait("[aria-label='Tasks'] .chip >> text=cancelled: 1")
        await task.cancel()
        await browser.wait("[aria-label='Tasks'] >> text=No task is at work.")


async def test_progress_is_shown_as_text(browser: Browser):
    async with opened(browser, hostile()):
        await browser.click("#tab-try")
        await browser.click("[data-name=step]")
        await browser.click("button[type=submit]")
        await browser.wait("main >> text=1 of 2")
        assert SCRIPT in await browser.text("main")
        await browser.click("button:has-text('Cancel')")


async def test_an_address_that_would_run_is_not_a_link(browser: Browser):
    async with opened(browser, hostile()):
        await browser.click("#tab-try")
        await browser.click("[data-name=visit]")
        await browser.click("button[type=submit]")
        await browser.wait("#questions >> text=javascript:window.hurt=1")
        assert await browser.count("#questions a") == 0
        assert SCRIPT in await browser.text("#questions")
        await browser.click("#questions code")
        await browser.click("#questions >> text=Decline")
        await browser.wait(".result >> text=decline")


async def test_upstreams_are_shown_with_their_health(browser: Browser):
    gateway = Gateway({"good": hostile(), "bad": "http://127.0.0.1:1/mcp"}, name="gateway")
    async with opened(browser, gateway):
        await browser.click("#tab-live")
        await browser.wait("[aria-label='Upstreams'] tr:has-text('good') .chip.good >> text=ready")
        await browser.wait("[aria-label='Upstreams'] tr:has-text('bad') .chip.bad >> text=down")
        [reason] = await browser.texts("[aria-label='Upstreams'] tr:has-text('bad') td:last-child")
        assert "127.0.0.1:1" in reason
        await browser.click("#tab-try")
        await browser.click("[data-name=good__step]")
        await browser.click("button[type=submit]")
        await browser.wait("main >> text=1 of 2")
        await browser.click("button:has-text('Cancel')")
