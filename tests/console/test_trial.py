"""Trying a server from a page: requests, questions, progress, tasks, raw messages, in both eras."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
import uvloop

from mcpearl import Context, Server
from mcpearl.console.standalone import serving_console
from mcpearl.console.trial import MAX_ASKS
from tests.console.page import KEY, open_page, served
from tests.waiting import eventually

ERAS = pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])


def make() -> Server:
    app = Server("weather", instructions="Ask for a city.")
    app.started = asyncio.Event()  # type: ignore[attr-defined]

    @app.tool
    async def forecast(city: str, days: int = 1) -> list[str]:
        return [f"sun in {city}"] * days

    @app.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1, 4, "waiting")
        app.started.set()  # type: ignore[attr-defined]
        await asyncio.Event().wait()
        return "never"

    @app.tool
    async def order(ctx: Context) -> str:
        count = await ctx.elicit("How many?", int)
        story = await ctx.sample("Tell a story", max_tokens=10)
        roots = await ctx.roots()
        return f"{count.data} {story.content.text} {[str(root.uri) for root in roots]}"

    @app.tool(task=True)
    async def report(year: int) -> str:
        return f"the year {year}"

    @app.resource("weather://now")
    def now() -> str:
        return "sunny"

    @app.resource("weather://stations/{name}")
    def station(name: str) -> str:
        return f"station {name}"

    @app.prompt
    def plan(city: str) -> str:
        return f"Plan a day in {city}."

    @app.complete("plan", "city")
    def cities(value: str) -> list[str]:
        return [city for city in ("Oslo", "Osaka") if city.startswith(value)]

    return app


def test_answers_are_timed_to_less_than_a_millisecond():
    """The loop of uvloop counts in whole ones, so that most answers took none."""

    async def main() -> list[float]:
        async with served(make()) as base, open_page(base) as page:
            await page.connect("weather")
            asked = [await page.ask("ping") for _ in range(10)]
            return [(await page.answer(id))["took"] * 1000 for id in asked]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        took = runner.run(main())
    assert any(abs(each - round(each)) > 1e-6 for each in took), took


@ERAS
async def test_everything_a_server_offers_can_be_asked_for(protocol: str):
    async with served(make()) as base, open_page(base) as page:
        state = await page.connect("weather", protocol)
        assert state["protocol"] == protocol and state["instructions"] == "Ask for a city."
        tools = (await page.call("tools/list"))["tools"]
        assert {"forecast", "wait"} <= {tool["name"] for tool in tools}
        params = {"name": "forecast", "arguments": {"city": "Oslo"}}
        result = await page.call("tools/call", params)
        assert result["structuredContent"] == {"result": ["sun in Oslo"]}
        assert (await page.call("resources/list"))["resources"][0]["uri"] == "weather://now"
        templates = (await page.call("resources/templates/list"))["resourceTemplates"]
        assert templates[0]["uriTemplate"] == "weather://stations/{name}"
        read = await page.call("resources/read", {"uri": "weather://stations/a"})
        assert read["contents"][0]["text"] == "station a"
        assert (await page.call("prompts/list"))["prompts"][0]["name"] == "plan"
        prompt = {"name": "plan", "arguments": {"city": "Oslo"}}
        text = (await page.call("prompts/get", prompt))["messages"][0]["content"]["text"]
        assert text == "Plan a day in Oslo."
        wanted = {
            "ref": {"type": "ref/prompt", "name": "plan"},
            "argument": {"name": "city", "value": "Os"},
        }
        found = await page.call("completion/complete", wanted)
        assert found["completion"]["values"] == ["Oslo", "Osaka"]
        assert await page.call("ping") == {}


@ERAS
async def test_a_person_answers_what_the_server_asks(protocol: str):
    async with served(make()) as base, open_page(base) as page:
        await page.do(do="roots", uris=["file:///tmp/a"])
        await page.connect("weather", protocol)
        asked = await page.ask("tools/call", {"name": "order"})
        form = await page.event("question", lambda e: e["method"] == "elicitation/create")
        assert form["params"]["message"] == "How many?"
        (field,) = form["params"]["requestedSchema"]["properties"]
        answer = {"action": "accept", "content": {field: 3}}
        await page.do(do="answer", question=form["number"], result=answer)
        sampling = await page.event("question", lambda e: e["method"] == "sampling/createMessage")
        text = {"type": "text", "text": "once"}
        story = {"role": "assistant", "content": text, "model": "a person"}
        await page.do(do="answer", question=sampling["number"], result=story)
        answered = await page.answer(asked)
        assert answered["result"]["content"][0]["text"] == "3 once ['file:///tmp/a']"
        late = await page.post(do="answer", question=form["number"], result=answer)
        assert late.status_code == 422 and "does not wait" in late.text


async def test_a_refused_question_is_an_answer_too():
    async with served(make()) as base, open_page(base) as page:
        await page.connect("weather", "2025-11-25")
        asked = await page.ask("tools/call", {"name": "order"})
        form = await page.event("question")
        await page.do(do="answer", question=form["number"], result={"action": "decline"})
        sampling = await page.event("question", lambda e: e["method"] == "sampling/createMessage")
        await page.do(do="answer", question=sampling["number"], result=None)
        assert (await page.answer(asked))["error"]["code"] == -1


@ERAS
async def test_a_call_shows_its_progress_and_can_be_cancelled(protocol: str):
    app = make()
    async with served(app) as base, open_page(base) as page:
        await page.connect("weather", protocol)
        asked = await page.ask("tools/call", {"name": "wait"})
        progress = await page.event("progress", lambda event: event["id"] == asked)
        assert (progress["progress"], progress["total"]) == (1, 4)
        await page.do(do="cancel", id=asked)
        assert (await page.answer(asked))["cancelled"] is True
        await eventually(lambda: app.core.counters()["calls_in_flight"] == 0)


@ERAS
async def test_a_tool_runs_as_a_task(protocol: str):
    async with served(make()) as base, open_page(base) as page:
        await page.connect("weather", protocol)
        params = {"name": "report", "arguments": {"year": 2026}}
        id = (await page.call("tools/call", params, task=True))["taskId"]
        result = await page.call("tasks/result", {"taskId": id})
        assert result["content"][0]["text"] == "the year 2026"
        assert (await page.call("tasks/get", {"taskId": id}))["status"] == "completed"


@ERAS
async def test_a_resource_is_followed(protocol: str):
    app = make()
    async with served(app) as base, open_page(base) as page:
        await page.connect("weather", protocol)
        await page.call("resources/subscribe", {"uri": "weather://now"})
        await eventually(lambda: app.core.subscriptions.counts()["uris"] == 1)
        app.notify_resource_updated("weather://now")
        notice = await page.event("notice", lambda e: e["method"].endswith("resources/updated"))
        assert notice["params"]["uri"] == "weather://now"
        await page.call("resources/unsubscribe", {"uri": "weather://now"})
        await eventually(lambda: app.core.subscriptions.counts()["uris"] == 0)


async def test_messages_are_shown_both_ways_and_one_written_by_hand_is_sent():
    async with served(make()) as base, open_page(base) as page:
        await page.connect("weather", "2025-11-25")
        await page.do(do="send", text='{"jsonrpc":"2.0","id":"mine",\n"method":"no/such"}')
        answer = await page.event(
            "message", lambda e: e["way"] == "received" and "mine" in e["text"]
        )
        assert json.loads(answer["text"])["error"]["code"] == -32601
        sent = [e["text"] for e in page.events if e["type"] == "message" and e["way"] == "sent"]
        assert "initialize" in sent[0] or "server/discover" in sent[0]
        await page.do(do="send", text="not JSON at all")
        await page.event("message", lambda e: "-32700" in e["text"])
        assert (await page.call("ping")) == {}


async def test_what_fails_is_explained():
    async with served(make()) as base, open_page(base) as page:
        early = await page.post(do="ask", id=1, method="ping")
        assert early.status_code == 422 and "not connected to a server yet" in early.text
        wrong = await page.post(do="open", target="weather", protocol="1999-01-01")
        assert wrong.status_code == 422 and "not a version" in wrong.text
        await page.connect("weather")
        unknown = await page.answer(await page.ask("tools/call", {"name": "forecasts"}))
        assert "forecast" in unknown["error"]["message"]
        incomplete = await page.answer(await page.ask("tools/call", {}))
        assert incomplete["error"]["message"] == "the params have no member 'name'"
        bad = await page.call("tools/call", {"name": "forecast", "arguments": {"city": 1}})
        assert bad["isError"] is True


async def test_requests_of_a_page_are_bounded():
    async with served(make()) as base, open_page(base) as page:
        await page.connect("weather")
        for _ in range(MAX_ASKS):
            await page.ask("tools/call", {"name": "wait"})
        refused = await page.post(do="ask", id=999, method="ping")
        assert refused.status_code == 422 and f"{MAX_ASKS} requests" in refused.text


async def test_a_page_that_leaves_takes_its_connection_with_it():
    app = make()
    async with served(app) as base:
        async with open_page(base) as page:
            await page.connect("weather", "2025-11-25")
            await page.ask("tools/call", {"name": "wait"})
            await eventually(lambda: app.core.counters()["calls_in_flight"] == 1)
        await eventually(lambda: not app.connections)
        assert app.core.counters()["calls_in_flight"] == 0


async def test_a_server_of_another_process_is_tried_and_its_stderr_shown(tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text(
        "import sys\nfrom mcpearl import Server\napp = Server('other')\n"
        "@app.tool\ndef hello() -> str:\n    print('said', file=sys.stderr, flush=True)\n"
        "    return 'hello'\napp.run()\n"
    )
    targets = {"other": str(file), "broken": [sys.executable, "-c", "raise SystemExit(3)"]}
    async with (
        serving_console(targets, key=KEY) as address,
        open_page(address.partition("/#")[0]) as page,
    ):
        await page.connect("other")
        result = await page.call("tools/call", {"name": "hello"})
        assert result["content"][0]["text"] == "hello"
        await page.event("stderr", lambda event: event["text"] == "said")
        await page.do(do="open", target="broken")
        failed = await page.event("state", lambda event: event.get("error"))
        assert "exit" in failed["error"]["message"]
