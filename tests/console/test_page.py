"""The page in a real Chromium: every part is used as a person would, with the mouse and the keyboard."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from mcpearl import Client, Context, Handler, Server, ToolError
from mcpearl.console.standalone import serving_console
from mcpearl.types import (
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    ListToolsResult,
    TextContent,
    Tool,
)
from tests.console.browser import Browser
from tests.console.page import KEY, served
from tests.ports import free_port
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the server more often than people need it."""
    monkeypatch.setattr("mcpearl.console.watching.EVERY", 0.2)


@dataclass
class Point:
    x: float
    y: float = 0.5


class Circle(msgspec.Struct, tag="circle", tag_field="kind"):
    radius: Annotated[int, msgspec.Meta(ge=1, le=10)]


class Line(msgspec.Struct, tag="line", tag_field="kind"):
    points: list[Point]


def make() -> Server:
    app = Server("weather", version="1.2.3", instructions="Ask for a city.")
    app.calls = []  # type: ignore[attr-defined]

    @app.tool
    async def forecast(city: str, days: int = 1) -> list[str]:
        """Say what the weather will be."""
        return [f"sun in {city}"] * days

    @app.tool
    async def everything(
        name: Annotated[str, msgspec.Meta(min_length=2, max_length=20, pattern="^[a-z]+$")],
        size: Annotated[int, msgspec.Meta(ge=1, le=10)],
        shape: Circle | Line,
        colour: Literal["red", "green"],
        at: Point,
        when: datetime,
        day: date | None = None,
        tags: list[str] | None = None,
        weights: dict[str, float] | None = None,
        pair: tuple[int, str] | None = None,
        loud: bool = False,
        number: int | str = 7,
        whatever: Any = None,
    ) -> str:
        """Take one of each."""
        app.calls.append((name, size, shape, colour, at, when.year, day, tags, weights, pair, loud))  # type: ignore[attr-defined]
        return f"{number!r} {whatever!r}"

    @app.tool
    async def wait(ctx: Context) -> str:
        """Never end."""
        await ctx.progress(1, 4, "still waiting")
        await asyncio.Event().wait()
        return "never"

    @app.tool
    async def order(ctx: Context) -> str:
        """Ask a person and a model."""
        count = await ctx.elicit("How many?", int)
        story = await ctx.sample("Tell a story", max_tokens=10)
        return f"{count.data} {story.content.text}"

    @app.tool
    async def pay(ctx: Context) -> str:
        """Send the person to an address."""
        return str((await ctx.elicit_url("Pay there", "https://pay.example/1")).action)

    @app.tool
    async def broken() -> str:
        """Fail."""
        raise ToolError("it broke")

    @app.tool(task=True)
    async def report(year: int) -> str:
        """Run as a task."""
        return f"the year {year}"

    @app.resource("weather://now")
    def now() -> str:
        """How it is now."""
        return "sunny"

    @app.resource("weather://stations/{name}")
    def station(name: str) -> str:
        return f"station {name}"

    @app.prompt
    def plan(city: str) -> str:
        """Plan a day."""
        return f"Plan a day in {city}."

    @app.complete("plan", "city")
    def cities(value: str) -> list[str]:
        return [city for city in ("Oslo", "Osaka") if city.startswith(value)]

    @app.background
    async def refresh() -> None:
        await asyncio.Event().wait()

    return app


@asynccontextmanager
async def opened(browser: Browser, app: Server, **options: Any) -> AsyncIterator[str]:
    """Serve an application, and open its console in a browser."""
    shown = {name: options.pop(name) for name in ("width", "height", "dark") if name in options}
    async with served(app, **options) as base:
        await browser.open(f"{base}#key={KEY}", permissions=["clipboard-write"], **shown)
        await browser.wait("#phase.good")
        yield base
        assert await browser.problems() == []


async def run_tool(browser: Browser, name: str) -> None:
    await browser.click("#tab-try")
    await browser.click("#tab-tools")
    await browser.click(f"[data-name={name}]")


async def test_a_server_at_work_is_seen_and_operated(browser: Browser):
    app = make()
    async with opened(browser, app, payloads=True) as base:
        url = base.removesuffix("/console") + "/mcp"
        trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        async with Client(url, protocol="2025-11-25") as client, Client(url) as modern:
            await client.call_tool("forecast", {"city": "Oslo"})
            await client.call_tool("broken")
            await modern.call_tool("forecast", {"city": "Bergen"}, meta=trace)
            await browser.wait("text=Last calls")
            calls = "[aria-label='Last calls']"
            await browser.wait(f"{calls} >> text=tool error")
            # Figures
            charts = await browser.texts(".chart")
            assert len(charts) == 8 and all("\u2013" not in chart for chart in charts)
            # The tree, with a restart that asks first
            assert "running" in await browser.text("[aria-label='Supervision tree']")
            await browser.click("[aria-label='Restart refresh']")
            await browser.click("dialog >> text=Yes")
            await browser.wait("text=restarted 1\u00d7")
            # Bounds
            assert "max_held" in await browser.text("[aria-label=Bounds]")
            # Arguments and results of a call
            await browser.click(f"{calls} >> button:has-text('forecast') >> nth=0")
            await browser.wait(f"{calls} >> text=/sun in (Oslo|Bergen)/")
            # Filters
            await browser.select(f"{calls} >> [aria-label=Outcome]", "failed")
            assert await browser.count(f"{calls} >> tbody >> tr") == 1
            await browser.select(f"{calls} >> [aria-label=Outcome]", "")
            await browser.fill("[aria-label='Find calls']", "broken")
            assert await browser.count(f"{calls} >> tbody >> text=forecast") == 0
            await browser.fill("[aria-label='Find calls']", "")
            # One trace, one session
            await browser.click("[aria-label^='Follow the trace 0af7']")
            await browser.wait("text=following trace 0af7651916cd")
            assert await browser.count(f"{calls} >> tbody >> text=broken") == 0
            (console,) = app.web.consoles.values()
            await eventually(lambda: len(console.watching.watch._followed) == 1)
            await browser.click("[aria-label='Follow all calls again']")
            await eventually(lambda: not console.watching.watch._followed)
            await browser.click(f"{calls} >> [aria-label^='Follow the session'] >> nth=0")
            await browser.wait("text=following session")
            await browser.click("[aria-label='Follow all calls again']")
            # Stop a call
            waiting = asyncio.create_task(client.call_tool("wait"))
            await browser.click("[aria-label='Calls in flight'] >> text=stop")
            with pytest.raises(Exception, match="stopped by the server's operator"):
                await waiting
            # End the session
            await browser.click("[aria-label='Clients and sessions'] >> button:has-text('end')")
            await browser.click("dialog >> text=Yes")
            await eventually(lambda: not [each for each in app.sessions if each.id])
        # Logs
        await browser.click("#tab-logs")
        await browser.wait("[role=log] >> text=was ended from the console")
        await browser.select("[aria-label='Lowest level']", "error")
        assert await browser.count("[role=log] >> text=was ended from the console") == 0


# Parts of the page are drawn again by timers: the next one does not start, and says so.
NO_DRAWING = "(window.setTimeout = () => { document.documentElement.lang = 'none'; return 1; }, 0)"


async def test_the_last_calls_stay_while_they_are_paused_or_one_is_open(browser: Browser):
    app = make()
    listed = "[aria-label='Last calls'] tbody td.naming"

    async def shows(calls: list[str]) -> None:
        wanted = [f"tools/call {name}" for name in calls]

        async def found() -> bool:
            return await browser.texts(listed) == wanted

        await eventually(found)

    async with (
        opened(browser, app, payloads=True) as base,
        Client(base.removesuffix("/console") + "/mcp") as client,
    ):
        await browser.fill("[aria-label='Find calls']", "tools/call")
        await client.call_tool("forecast", {"city": "Oslo"})
        await shows(["forecast"])
        await browser.click("text=Pause")
        await client.call_tool("broken")
        await browser.wait("[aria-label=Failures] >> text=1 failed")
        # An open call does not let the others in.
        await browser.click(f"{listed} button")
        await browser.wait("text=sun in Oslo")
        assert await browser.texts(listed) == ["tools/call forecast"]
        await browser.click("text=Go on")
        await shows(["broken", "forecast"])
        # A call that is opened holds the list until it is closed.
        await browser.click(f"{listed} button:has-text('forecast')")
        await client.call_tool("forecast", {"city": "Bergen"})
        await browser.wait("[aria-label=Calls] >> text=/while watched/")
        await browser.click(f"{listed} button:has-text('broken')")
        assert await browser.texts(listed) == ["tools/call broken", "tools/call forecast"]
        await browser.wait("[aria-label='Last calls'] >> text=paused")
        await browser.click(f"{listed} button:has-text('broken')")
        await browser.click(f"{listed} button:has-text('forecast')")
        await shows(["forecast", "broken", "forecast"])
        # One that came since the list was drawn does not push the one that is clicked away.
        await browser.evaluate(NO_DRAWING)
        await browser.wait("html[lang=none]")
        await client.call_tool("broken")
        await browser.wait("[aria-label=Failures] >> text=2 failed")
        await browser.click(f"{listed} button >> nth=0")
        await browser.wait("text=sun in Bergen")
        assert len(await browser.texts(listed)) == 3


async def test_forms_have_every_type_with_checks_and_defaults(browser: Browser):
    app = make()
    async with opened(browser, app):
        await run_tool(browser, "everything")
        await browser.wait("[data-field=name]")
        await browser.click("button[type=submit]")
        wrong = await browser.text(".output [role=alert]")
        for field in ("size", "colour", "when", "shape"):
            assert field in wrong or "radius" in wrong, wrong
        await browser.fill("[data-field=name] textarea, [data-field=name] input", "A1")
        await browser.fill("[data-field=size] input", "11")
        await browser.click("button[type=submit]")
        assert "must be like" in await browser.text("[data-field=name] .error")
        assert "at most 10" in await browser.text("[data-field=size] .error")
        assert await browser.count("[aria-invalid=true]") >= 4
        await browser.fill("[data-field=name] textarea, [data-field=name] input", "ada")
        await browser.fill("[data-field=size] input", "3")
        await browser.select("[data-field=colour] select", "1")
        await browser.fill("[data-field=x] input", "1.5")
        await browser.fill("[data-field=when] input", "2026-07-28T12:00:00")
        await browser.fill("[data-field=day] input", "2026-01-31")
        await browser.fill("[data-field=radius] input", "4")
        await browser.do("check", selector="[aria-label='Include tags']")
        await browser.click("text=Add to tags")
        await browser.click("text=Add to tags")
        await browser.fill("[data-field='tags[]'] >> nth=0 >> textarea", "one")
        await browser.fill("[data-field='tags[]'] >> nth=1 >> textarea", "two")
        await browser.do("check", selector="[aria-label='Include weights']")
        await browser.click("text=Add to weights")
        await browser.fill("[aria-label='Name in weights']", "heavy")
        await browser.fill("[data-field=weights] [data-field=value] input", "2.5")
        await browser.do("check", selector="[aria-label='Include pair']")
        await browser.fill("[data-field='pair[0]'] input", "1")
        await browser.fill("[data-field='pair[1]'] textarea", "a")
        await browser.do("check", selector="[data-field=loud] input")
        await browser.fill("[data-field=whatever] textarea", '{"a": [1]}')
        await browser.press("Control+Enter")
        await browser.wait(".result >> text=7 {'a': [1]}")
        (call,) = app.calls  # type: ignore[attr-defined]
        assert call == (
            *("ada", 3, Circle(4), "green", Point(1.5, 0.5), 2026, date(2026, 1, 31)),
            *(["one", "two"], {"heavy": 2.5}, (1, "a"), True),
        )
        # The other variant of the union, through the JSON and back
        await browser.click("text=Form / JSON")
        text = await browser.do("value", selector="[aria-label='Arguments as JSON']")
        arguments = msgspec.json.decode(text)
        arguments["shape"] = {"kind": "line", "points": [{"x": 1.0, "y": 2.0}]}
        await browser.fill("[aria-label='Arguments as JSON']", "{")
        await browser.click("button[type=submit]")
        await browser.wait(".output [role=alert]")
        await browser.fill(
            "[aria-label='Arguments as JSON']", msgspec.json.encode(arguments).decode()
        )
        await browser.click("text=Form / JSON")
        await browser.wait("[data-field='points[]']")
        await browser.click("button[type=submit]")
        await eventually(lambda: len(app.calls) == 2)  # type: ignore[attr-defined]
        assert app.calls[1][2] == Line([Point(1.0, 2.0)])  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_all_that_a_server_offers_is_tried(browser: Browser, protocol: str):
    app = make()
    async with opened(browser, app):
        await browser.select("#protocol", protocol)
        await browser.wait(f"#phase.good >> text={protocol}")
        await browser.click("#tab-try")
        assert "Ask for a city." in await browser.text("main")
        # Questions of the server
        await run_tool(browser, "order")
        await browser.click("button[type=submit]")
        await browser.wait("#questions >> text=How many?")
        await browser.fill("#questions input", "3")
        await browser.click("#questions >> text=Accept")
        await browser.wait("#questions >> text=Tell a story")
        await browser.fill("#questions textarea", "once upon a time")
        await browser.click("#questions >> text=Answer")
        await browser.wait(".result >> text=3 once upon a time")
        assert await browser.evaluate("document.getElementById('questions').hidden") is True
        await run_tool(browser, "pay")
        await browser.click("button[type=submit]")
        await browser.wait("#questions a[rel='noopener noreferrer'] >> text=https://pay.example/1")
        await browser.click("#questions >> text=I have been there")
        await browser.wait(".result >> text=accept")
        # Progress and cancellation
        await run_tool(browser, "wait")
        await browser.click("button[type=submit]")
        await browser.wait("text=still waiting · 1 of 4")
        await browser.click("button:has-text('Cancel'):not([disabled])")
        await browser.wait(".output >> text=Cancelled")
        await eventually(lambda: app.core.counters()["calls_in_flight"] == 0)
        # A failure, and a task
        await run_tool(browser, "broken")
        await browser.click("button[type=submit]")
        await browser.wait(".result >> text=it broke")
        await run_tool(browser, "report")
        await browser.fill("[data-field=year] input", "2026")
        await browser.do("check", selector="#as-task")
        await browser.click("button[type=submit]")
        await browser.wait(".block >> text=the year 2026")
        await browser.wait(".block .chip:has-text('completed')")
        # Resources, with a subscription
        await browser.click("#tab-resources")
        await browser.click(".list button >> text=now")
        await browser.click("text=Subscribe")
        await eventually(lambda: app.core.subscriptions.counts()["uris"] == 1)
        app.notify_resource_updated("weather://now")
        await browser.click("text=Unsubscribe")
        await browser.click("button:has-text('Read')")
        await browser.wait(".result >> text=sunny")
        await browser.click("#tab-templates")
        await browser.click(".list button")
        await browser.fill("[data-field=name] input", "a b")
        await browser.press("Enter")
        await browser.wait(".result >> text=station a b")
        # A prompt, with completion
        await browser.click("#tab-prompts")
        await browser.click(".list button")
        await browser.click("button:has-text('Get')")
        assert "city: is required" in await browser.text(".output")
        await browser.fill("[data-field=city] input", "Os")
        await browser.wait("datalist option[value=Osaka]", state="attached")
        await browser.fill("[data-field=city] input", "Oslo")
        await browser.click("button:has-text('Get')")
        await browser.wait(".result >> text=Plan a day in Oslo.")
        # Messages, both ways, and one by hand
        await browser.click("#tab-messages")
        await browser.click("text=Example")
        await browser.click("button:has-text('Send')")
        await browser.fill("[aria-label='Find messages']", "by-hand-1")
        await browser.wait(".way.sent")
        await browser.wait(".way.received")
        named = await browser.texts(".messages summary b")
        assert named == ["result of tools/list", "tools/list"]
        await browser.click(".messages summary")
        await browser.wait(".messages pre >> text=jsonrpc")
        # The client
        await browser.click("#tab-client")
        await browser.click("button:has-text('Ping')")
        await browser.wait("[role=status] >> text=answered after")
        await browser.fill("textarea[aria-label=Roots]", "file:///tmp/a")
        await browser.click("text=Use these roots")
        await browser.wait("#toast >> text=told when it asks")
        await browser.click("[aria-label='Any request'] >> button:has-text('Send')")
        await browser.wait("[aria-label='Any request'] pre >> text=inputSchema")
        await browser.click("#tab-logs")
        await browser.wait("[role=log] >> text=weather://now")


async def test_a_call_is_copied_as_something_that_runs(browser: Browser, tmp_path: Path):
    async with opened(browser, make()):
        commands = []
        for protocol in ("2026-07-28", "2025-11-25"):
            await browser.select("#protocol", protocol)
            await browser.wait(f"#phase.good >> text={protocol}")
            await run_tool(browser, "forecast")
            await browser.fill("[data-field=city] textarea", 'São "Paulo" it\'s 🌞')
            commands.append(["sh", "-c", await copied(browser, "curl")])
            program, command = await copied(browser, "python"), await copied(browser, "command")
            older = protocol == "2025-11-25"  # then the copy names it, too
            assert (f'protocol="{protocol}"' in program) is older
            assert (f" --protocol {protocol} " in command) is older
            file = tmp_path / f"{protocol}.py"
            file.write_text(program)
            commands.append([sys.executable, str(file)])
            own = f"{sys.executable} -m mcpearl "
            commands.append(["sh", "-c", command.replace("mcpearl ", own, 1)])
        for done in await asyncio.gather(*(asyncio.to_thread(run, each) for each in commands)):
            said = done.stdout.encode().decode("unicode_escape", "ignore") + done.stdout
            assert "Paulo" in said and "sun in" in said, done


async def copied(browser: Browser, way: str) -> str:
    await browser.select("[aria-label='Copy the call']", way)
    await browser.wait(f".output >> b:text-is('{way}')")
    text: str = await browser.evaluate("document.querySelector('pre.copy').textContent")
    return text


def run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf"
        "c0f01f00050001ff56c72f0d0000000049454e44ae426082"
    )
).decode()
SCRIPT = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload='window.hurt=1'>{SCRIPT}</svg>"


def hostile() -> Server:
    """Make a server that tries to run something in the page."""
    app = Server(f"evil{SCRIPT}", instructions=SCRIPT, title=SCRIPT)

    @app.tool(name="evil", title=SCRIPT, description=SCRIPT)
    async def evil(ctx: Context) -> list[Any]:
        await ctx.log("error", SCRIPT)
        await ctx.elicit(SCRIPT, bool)
        return [
            TextContent(text=SCRIPT),
            ImageContent(data=base64.b64encode(SVG.encode()).decode(), mime_type="image/svg+xml"),
            ImageContent(data=PIXEL, mime_type="image/png"),
            ImageContent(data=PIXEL, mime_type="text/html"),
            ImageContent(data="<not base64>", mime_type="image/png"),
        ]

    @app.resource("javascript:window.hurt=1", name=SCRIPT, mime_type="text/html")
    def page() -> str:
        return SCRIPT

    @app.resource(
        "data:text/html,%3Cscript%3Ewindow.hurt=1%3C/script%3E", mime_type="image/svg+xml"
    )
    def picture() -> bytes:
        return SVG.encode()

    @app.prompt(name="prompt", description=SCRIPT)
    def prompt(x: str) -> str:
        return SCRIPT

    return app


async def test_nothing_a_server_sends_runs_in_the_page(browser: Browser):
    app = hostile()
    async with opened(browser, app, payloads=True) as base:
        async with Client(
            base.removesuffix("/console") + "/mcp", elicitation=lambda _: {"value": True}
        ) as other:
            await other.call_tool("evil", meta={"traceparent": f"00-{SCRIPT}-b7ad6b7169203331-01"})
        await browser.wait("[aria-label='Last calls'] >> text=evil")
        await browser.click("[aria-label='Last calls'] >> button >> text=evil")
        await browser.click("#tab-try")
        assert SCRIPT in await browser.text("main")
        await browser.click("[data-name=evil]")
        await browser.click("button[type=submit]")
        await browser.wait("#questions form")
        await browser.click("#questions >> text=Accept")
        await browser.wait(".result img")
        assert await browser.count(".result img") == 1, "only the picture that cannot run is shown"
        source = await browser.evaluate("document.querySelector('.result img').src")
        assert source.startswith("blob:")
        await browser.click("#tab-resources")
        for number in (0, 1):
            await browser.click(f".list li >> nth={number} >> button")
            await browser.click("button:has-text('Read')")
            await browser.wait(".result .block")
        schemes = await browser.evaluate("[...document.links].map((each) => each.protocol)")
        assert not set(schemes) & {"javascript:", "data:"}
        await browser.click("#tab-prompts")
        await browser.click(".list button")
        await browser.fill("[data-field=x] input", SCRIPT)
        await browser.press("Enter")
        await browser.wait(".result .block")
        for tab in ("messages", "logs", "client", "live"):
            await browser.click(f"#tab-{tab}")
        assert await browser.evaluate("window.hurt") is None
        assert await browser.evaluate("document.querySelectorAll('script').length") == 1
        assert await browser.problems() == []
        # Even a mistake of the page itself could not make markup of text.
        mistake = "try { document.body.innerHTML = '<b>x</b>'; 'made' } catch (e) { e.name }"
        assert await browser.evaluate(mistake) == "TypeError"
        await browser.problems()  # the policy reports the mistake above


class Monstrous(Handler):
    """Lists a tool whose schema is made to keep a page busy."""

    async def list_tools(self, cursor: str | None, ctx: Context) -> ListToolsResult:
        loop = {f"p{number}": {"$ref": "#"} for number in range(50)}
        schema = {
            "type": "object",
            "properties": {
                **loop,
                "many": {"enum": [f"value {number}" for number in range(20_000)]},
                "around": {"$ref": "#/properties/around"},
                "nowhere": {"$ref": "https://evil.example/schema"},
                "slow": {"type": "string", "pattern": "^(a+)+$", "default": "a" * 40 + "!"},
                "__proto__": {"type": "string", "default": "mine"},
                "odd": {"type": ["string", "null", 7], "enum": 3, "anyOf": "x", "required": "y"},
                "plain": True,
                "never": False,
            },
        }
        return ListToolsResult(tools=[Tool(name="monstrous", input_schema=schema)])

    async def call_tool(self, params: CallToolRequestParams, ctx: Context) -> CallToolResult:
        given = sorted(msgspec.json.decode(params.arguments))
        return CallToolResult(content=[TextContent(text=f"given {given}")])


async def test_a_schema_made_to_keep_the_page_busy_does_not(browser: Browser):
    async with opened(browser, Server("weather", handler=Monstrous())):
        await run_tool(browser, "monstrous")
        await browser.wait("[data-field=plain] >> visible=true")
        assert await browser.count("[data-field]") < 2000
        await browser.click("button[type=submit]")
        await browser.wait(".result >> text=given ['__proto__', 'slow']")
        assert await browser.evaluate(
            "({}).mine === undefined && Object.prototype.toString.call({})"
        )


async def test_a_page_without_the_key_asks_for_it_and_one_whose_server_left_comes_back(
    browser: Browser,
):
    port = free_port()
    async with served(make(), port=port) as base:
        await browser.open(base)
        await browser.wait("dialog >> text=Open the address that the server printed")
        await browser.fill("#key", KEY)
        await browser.press("Enter")
        await browser.wait("#phase.good")
        assert KEY not in await browser.evaluate("location.href")
    await browser.wait("#phase:not(.good)")
    async with served(make(), port=port):
        await browser.wait("#phase.good")
        await run_tool(browser, "forecast")
        await browser.fill("[data-field=city] textarea", "Oslo")
        await browser.click("button[type=submit]")
        await browser.wait(".result >> text=sun in Oslo")


async def test_a_console_for_several_servers(browser: Browser, tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text(
        "from mcpearl import Server\napp = Server('other')\n"
        "@app.tool\ndef hello() -> str:\n    return 'hello from another process'\napp.run()\n"
    )
    down = f"http://127.0.0.1:{free_port()}/mcp"
    targets = {"first": make(), "second": str(file), "third": down}
    async with serving_console(targets, key=KEY) as url:
        await browser.open(url)
        await browser.wait("#phase.good")
        assert await browser.evaluate("document.getElementById('tab-live').hidden") is True
        await browser.select("#target", "second")
        await browser.click("[data-name=hello]")
        await browser.click("button[type=submit]")
        await browser.wait(".result >> text=hello from another process")
        # Nothing of the server before is left where one cannot be reached.
        await browser.select("#target", "third")
        await browser.wait("[role=alert] >> text=cannot connect to")
        assert "third cannot be reached" in await browser.text("main")
        assert await browser.count("[data-name]") == 0
        await browser.select("#target", "first")
        await browser.wait("[data-name=forecast]")
        assert await browser.problems() == []
