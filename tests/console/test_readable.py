"""Every view of the page on a phone and on a tablet, in light and dark: whether it can be read and used.

The axe engine looks at what a browser has really drawn: names, roles, contrast, focus.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client
from tests.console.browser import PROGRAMS, Browser
from tests.console.test_page import copied, make, opened, run_tool
from tests.waiting import eventually

AXE = PROGRAMS / "node_modules" / "axe-core" / "axe.min.js"
LOOK = """axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
  violations.flatMap(({ id, nodes }) => nodes.map(({ html, any, all, none }) =>
    `${id}: ${html.slice(0, 200)} ${[...any, ...all, ...none].map((each) => each.message)}`)))"""
# What does not fit: an element that leaves the screen, or that can be scrolled sideways. Lines that are
# cut on purpose are left out.
TOO_WIDE = """[...document.querySelectorAll('body, body *')].filter((each) => {
  const cut = each.closest('.skip, thead, .messages summary, .list small');
  if (cut || !each.checkVisibility() || !each.clientWidth) return false;
  const { left, right } = each.getBoundingClientRect();
  const scrolls = getComputedStyle(each).overflowX !== 'visible';
  const sideways = scrolls && each.scrollWidth > each.clientWidth + 1;
  return sideways || left < -1 || right > document.documentElement.clientWidth + 1;
}).map((each) => each.outerHTML.slice(0, 200))"""
STILL = "Promise.all(document.getAnimations().map((each) => each.finished)).then(() => 0)"
# Text that a control is drawn over, or that is over a control.
COVERED = """[...(document.querySelector('dialog') ?? document)
  .querySelectorAll('button, input, select, textarea')].filter((each) => {
  each.scrollIntoView({ block: 'center' });
  const { left, top, width, height } = each.getBoundingClientRect();
  if (!each.checkVisibility() || !width) return false;
  const above = document.elementFromPoint(left + width / 2, top + height / 2);
  return !(each.contains(above) || above?.contains(each) || above?.closest('label')?.contains(each));
}).map((each) => each.outerHTML.slice(0, 200))"""
CONTRAST = """(() => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    const hex = style.getPropertyValue(name).trim();
    const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const found = {};
  for (const [text, back] of [...['text', 'soft', 'accent', 'good', 'warn', 'bad'].flatMap((text) =>
    ['card', 'back', 'code'].map((back) => [text, back])), ['on-accent', 'accent']]) {
    const [one, other] = [light('--' + text), light('--' + back)].sort();
    found[text + ' on ' + back] = (other + 0.05) / (one + 0.05);
  }
  return found;
})()"""


class Onlooker:
    """Looks at one view after the other."""

    def __init__(self, browser: Browser, pictures: Path) -> None:
        self._browser = browser
        self._pictures = pictures

    async def look(self, view: str) -> None:
        await self._browser.evaluate(STILL)  # colours that are changing would be measured
        for script in (TOO_WIDE, LOOK, COVERED):
            if found := await self._browser.evaluate(script):
                picture = self._pictures / f"{view}.png"
                await self._browser.screenshot(picture, whole=True)
                pytest.fail(f"{view}, as in {picture}: {found}")


@asynccontextmanager
async def busy(url: str) -> AsyncIterator[Any]:
    """Have something in every part of the live view: sessions, a trace, failures, a call that lasts."""
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with Client(url, protocol="2025-11-25") as client, Client(url) as modern:
        await client.call_tool("broken")
        await modern.call_tool("forecast", {"city": "Bergen"}, meta=trace)
        lasting = asyncio.create_task(client.call_tool("wait"))
        yield client
        lasting.cancel()
        await asyncio.wait([lasting])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 768], ids=["phone", "tablet"])
async def test_every_view_fits_and_can_be_read(
    browser: Browser, width: int, dark: bool, tmp_path: Path
):
    app = make()
    async with opened(browser, app, payloads=True, dark=dark, width=width, height=800) as base:
        onlooker = Onlooker(browser, tmp_path)
        await browser.evaluate(AXE.read_text() + ";0")
        async with busy(base.removesuffix("/console") + "/mcp"):
            calls = "[aria-label='Last calls']"
            await browser.wait(f"{calls} >> text=tool error")
            await browser.wait("[aria-label='Calls in flight'] >> text=wait")
            # All that a wide screen shows of a call is here too.
            await browser.click(f"{calls} >> button:has-text('forecast')")
            await browser.click("[aria-label^='Follow the trace 0af7']")
            await browser.wait("text=following trace 0af7651916cd")
            await onlooker.look("live")
            await browser.click("[aria-label='Restart refresh']")
            await onlooker.look("dialog")
            await browser.click("dialog >> text=No")
        await run_tool(browser, "everything")
        await browser.click("button[type=submit]")
        await browser.wait("[aria-invalid=true]")
        await browser.do("check", selector="[aria-label='Include weights']")
        await browser.click("text=Add to weights")
        await onlooker.look("form")
        await browser.click("text=Form / JSON")
        await onlooker.look("json")
        await run_tool(browser, "report")
        await browser.fill("[data-field=year] input", "2026")
        await browser.do("check", selector="#as-task")
        await browser.click("button[type=submit]")
        await browser.wait(".block .chip:has-text('completed')")
        await copied(browser, "curl")
        await onlooker.look("task")
        await run_tool(browser, "order")
        await browser.click("button[type=submit]")
        await browser.wait("#questions >> text=How many?")
        await onlooker.look("elicitation")
        await browser.fill("#questions input", "3")
        await browser.click("#questions >> text=Accept")
        await browser.wait("#questions >> text=Tell a story")
        await onlooker.look("sampling")
        await browser.click("#questions >> text=Refuse")
        await eventually(lambda: app.core.counters()["calls_in_flight"] == 0)
        for tab in ("resources", "templates", "prompts"):
            await browser.click(f"#tab-{tab}")
            await browser.click(".list button")
            await onlooker.look(tab)
        for tab in ("client", "messages", "logs"):
            await browser.click(f"#tab-{tab}")
            await onlooker.look(tab)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_it_can_be_used_without_a_mouse_and_in_either_theme(browser: Browser, dark: bool):
    async with opened(browser, make(), dark=dark, width=390, height=800):
        contrasts = await browser.evaluate(CONTRAST)
        assert all(value >= 4.5 for value in contrasts.values()), contrasts
        # By keyboard alone: to the tabs, along them, and into a form
        await browser.evaluate("document.getElementById('tab-try').focus()")
        await browser.press("ArrowRight")
        assert await browser.evaluate("document.activeElement.id") == "tab-client"
        await browser.press("Home")
        assert await browser.evaluate("document.activeElement.id") == "tab-live"
        width = "getComputedStyle(document.activeElement).outlineWidth"
        assert await browser.evaluate(width) == "2px"
        before = await browser.evaluate("getComputedStyle(document.body).backgroundColor")
        await browser.click("#theme")
        after = await browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert before != after


# How far the texts of buttons in a row are from where their headings begin.
APART = """(() => {
  const text = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return range.getBoundingClientRect();
  };
  const row = [...document.querySelectorAll("[aria-label='Last calls'] tbody tr")]
    .find((each) => each.cells[3]?.querySelector('button'));
  const heads = row.closest('table').querySelectorAll('thead th');
  return [1, 3].flatMap((at) => {
    const button = row.cells[at].querySelector('button');
    return [Math.abs(text(button).left - text(heads[at]).left)];
  });
})()"""


async def test_what_was_wrong_is_not_said_of_what_is_written_instead(browser: Browser):
    async with opened(browser, make()):
        await run_tool(browser, "everything")
        await browser.fill("[data-field=size] input", "11")
        await browser.click("main button.main")
        await browser.wait("[data-field=size] .error >> text=at most 10")
        await browser.fill("[data-field=size] input", "5")
        assert await browser.text("[data-field=size] .error") == ""
        assert await browser.count("[data-field=size] [aria-invalid=true]") == 0
        assert await browser.text("[data-field=colour] .error") == "is required"
        await browser.select("[data-field=colour] select", "0")
        assert await browser.text("[data-field=colour] .error") == ""


async def test_what_a_row_does_stands_under_its_heading(browser: Browser):
    """Texts that are buttons begin where the heading of their column does."""
    async with opened(browser, make(), payloads=True, width=1440) as base:
        async with Client(base.removesuffix("/console") + "/mcp", protocol="2025-11-25") as client:
            await client.call_tool("forecast", {"city": "Oslo"})
            row = "[aria-label='Last calls'] tbody tr:has(b:text-is('forecast'))"
            await browser.wait(f"{row} td:nth-child(4) button")
            apart = await browser.evaluate(APART)
        assert apart and max(apart) < 1, apart
