"""What a page shows of a server at work, and what a person can do about it."""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mcpearl import Client, Context, McpError, Server, ToolError
from mcpearl.console.live import Live
from mcpearl.console.watch import KEPT, MAX_TIMES, ROOM, ROOM_FAILED, LiveWatch
from mcpearl.gateway.gateway import Gateway
from mcpearl.runtime import clock
from mcpearl.runtime.observer import SamplingObserver, Stretch
from mcpearl.testing.clock import MovableClock
from mcpearl.types import CallToolResult
from tests.console.page import open_page, served
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the server more often than people need it."""
    monkeypatch.setattr("mcpearl.console.watching.EVERY", 0.05)


def make() -> Server:
    app = Server("weather")

    @app.tool
    async def forecast(city: str) -> str:
        return f"sun in {city}"

    @app.tool
    async def broken() -> str:
        raise ToolError("it broke")

    @app.tool
    async def wait(ctx: Context) -> str:
        await asyncio.Event().wait()
        return "never"

    @app.tool(task=True)
    async def long() -> str:
        await asyncio.Event().wait()
        return "never"

    @app.background
    async def refresh() -> None:
        await asyncio.Event().wait()

    return app


def mcp(base: str) -> str:
    return base.removesuffix("/console") + "/mcp"


def watch_of(app: Server) -> LiveWatch:
    (console,) = app.web.consoles.values()
    watch: LiveWatch = console.watching.watch
    return watch


class All(Stretch):
    def follows(self, call: Any) -> bool:
        return True


class Follower(SamplingObserver):
    """Follows every call, as a tracer that samples all of them does."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def stretch(self) -> Stretch:
        return All()

    def passing_by(self) -> Any:
        return (lambda: None), (lambda _: None)

    def call_began(self, call: Any) -> str:
        return "a span"

    def call_ended(self, began: Any, call: Any, outcome: Any, size: int, answer: Any) -> None:
        assert began == "a span"
        self.ended.append(outcome)


@pytest.mark.parametrize("watched", [False, True])
async def test_calls_that_a_tracer_follows_are_told_to_both(watched: bool):
    tracer = Follower()
    app = Server("traced", observer=tracer)

    @app.tool
    async def forecast(city: str) -> str:
        return f"sun in {city}"

    async with served(app) as base, Client(mcp(base)) as client:
        if watched:
            async with open_page(base) as page:
                await client.call_tool("forecast", {"city": "Oslo"})
                await page.event(
                    "calls", lambda event: any(row["name"] == "forecast" for row in event["rows"])
                )
        else:
            await client.call_tool("forecast", {"city": "Oslo"})
    assert tracer.ended.count("result") >= 1


async def test_figures_calls_and_sessions_are_shown():
    app = make()
    async with served(app) as base, open_page(base) as page, Client(mcp(base)) as modern:  # noqa: SIM117
        async with Client(mcp(base), protocol="2025-11-25") as legacy:
            await modern.call_tool("forecast", {"city": "Oslo"})
            await legacy.call_tool("forecast", {"city": "Oslo"})
            await legacy.call_tool("broken")

            def tools(event: Any) -> list[Any]:
                return [row for row in event["rows"] if row["method"] == "tools/call"]

            async def shown() -> list[Any]:
                found = [row for e in page.events if e["type"] == "calls" for row in tools(e)]
                return found if len(found) == 3 else []

            rows = await eventually(shown)
            assert [row["name"] for row in rows] == ["forecast", "forecast", "broken"]
            assert [row["outcome"] for row in rows] == ["result", "result", "tool_error"]
            assert [row["session"] is None for row in rows] == [True, False, False]
            assert all(row["took"] > 0 and row["size"] > 0 for row in rows)
            assert all(row["arguments"] is None and row["result"] is None for row in rows)
            pulse = await page.event("pulse", lambda event: event["totals"]["tool_error"] == 1)
            assert pulse["memory"] > 1_000_000 and pulse["sessions"] >= 1
            sessions = await page.event(
                "sessions", lambda event: any(row.get("is_session") for row in event["rows"])
            )
            row = next(row for row in sessions["rows"] if row.get("is_session"))
            assert row["protocol"] == "2025-11-25" and row["client"].startswith("mcpearl")
            assert row["held"] > 0 and row["wire"] == "http"
            (session,) = [each for each in app.sessions if each.id]
            assert session.id is not None and session.id.startswith(row["session"])
            assert len(row["session"]) < len(session.id), "a whole id lets its reader take it over"


async def test_arguments_and_results_are_shown_only_where_that_is_allowed():
    app = make()
    async with served(app, payloads=True) as base, open_page(base) as page:
        assert page.events[0]["payloads"] is True
        async with Client(mcp(base)) as client:
            await client.call_tool("forecast", {"city": "Oslo"})
            await client.call_tool("forecast", {"city": "x" * 100_000})
        named = "forecast"
        event = await page.event("calls", lambda e: [r for r in e["rows"] if r["name"] == named])
        row = next(row for row in event["rows"] if row["name"] == named)
        assert '"Oslo"' in row["arguments"] and "sun in Oslo" in row["result"]
        longest = [len(str(row)) for e in page.events if e["type"] == "calls" for row in e["rows"]]
        assert max(longest) < 12_000


async def test_a_call_is_stopped_and_its_client_told():
    app = make()
    async with served(app) as base, open_page(base) as page:
        for protocol in ("2026-07-28", "2025-11-25"):
            async with Client(mcp(base), protocol=protocol) as client:
                call = asyncio.create_task(client.call_tool("wait"))
                running = await page.event(
                    "running", lambda event: any(row["name"] == "wait" for row in event["rows"])
                )
                row = next(row for row in running["rows"] if row["name"] == "wait")
                await page.do(do="stop_call", number=row["number"])
                with pytest.raises(McpError, match="stopped by the server's operator"):
                    await call
                over = await page.post(do="stop_call", number=row["number"])
                assert over.status_code == 422 and "over already" in over.text
                assert app.core.counters()["calls_in_flight"] == 0
                page.events = page.events[:1]


async def test_a_call_that_began_before_the_page_was_opened_is_shown_with_its_whole_time():
    app = make()
    async with served(app) as base, Client(mcp(base)) as client:
        call = asyncio.create_task(client.call_tool("wait"))
        await eventually(lambda: app.core.counters()["calls_in_flight"])
        began = clock.monotonic()
        await client.call_tool("forecast", {"city": "Oslo"})
        at_least = clock.monotonic() - began
        async with open_page(base) as page:
            running = await page.event("running", lambda event: event["rows"])
            (row,) = [row for row in running["rows"] if row["name"] == "wait"]
            assert row["seconds"] >= at_least
        call.cancel()


async def test_rows_stay_in_order_while_clients_come_and_go():
    app = make()
    async with served(app) as base, open_page(base) as page, AsyncExitStack() as clients:
        for _ in range(3):
            async with AsyncExitStack() as few:
                for stack in [few, clients] * 4:
                    client = Client(mcp(base), protocol="2025-11-25")
                    await stack.enter_async_context(client)
        await page.event("sessions", lambda event: len(event["rows"]) >= 12)
        shown = [e["rows"] for e in page.events if e["type"] == "sessions"]
        numbers = [[row["number"] for row in rows] for rows in shown]
        assert numbers == [sorted(each) for each in numbers]


async def test_a_session_is_ended():
    app = make()
    async with served(app) as base, open_page(base) as page:  # noqa: SIM117
        async with Client(mcp(base), protocol="2025-11-25", reconnect=False):
            sessions = await page.event(
                "sessions", lambda event: any(row.get("is_session") for row in event["rows"])
            )
            row = next(row for row in sessions["rows"] if row.get("is_session"))
            await page.do(do="end_session", number=row["number"])
            await eventually(lambda: not app.sessions)
            again = await page.post(do="end_session", number=row["number"])
            assert again.status_code == 422


async def test_the_tree_is_shown_and_a_part_restarted():
    app = make()
    async with served(app) as base, open_page(base) as page:
        tree = await page.event("tree")
        names = [child["name"] for child in tree["root"]["children"]]
        assert {"bus", "watchdog of the event loop", "background"} <= set(names)
        await page.do(do="restart_child", path=["background", "refresh"])

        def restarted(event: Any) -> bool:
            parts = event["root"]["children"]
            background = next(part for part in parts if part["name"] == "background")
            child = background["children"][0]
            return bool(child["restarts"] == 1 and child["state"] == "running")

        await page.event("tree", restarted)
        none = await page.post(do="restart_child", path=["background", "nothing"])
        assert none.status_code == 422
        assert (await page.post(do="restart_child", path=[])).status_code == 422


async def test_a_console_that_only_shows_does_nothing():
    async with served(make(), operable=False) as base, open_page(base) as page:
        assert page.events[0]["operable"] is False
        for action in (
            {"do": "restart_child", "path": ["background", "refresh"]},
            {"do": "stop_call", "number": 1},
            {"do": "end_session", "number": 1},
        ):
            refused = await page.post(**action)
            assert refused.status_code == 422 and "only shows" in refused.text


async def test_the_age_of_a_task_is_by_the_clock_that_dates_it(mcp_clock: MovableClock):
    app = make()
    async with Client(app) as client:
        await client.start_task("long")
        mcp_clock.move(3600)
        (row,) = Live(app, LiveWatch(payloads=False), []).tasks()["rows"]
        assert 3600 <= row["seconds"] < 3660


async def test_tasks_and_bounds_are_shown():
    app = make()
    async with served(app) as base, open_page(base) as page, Client(mcp(base)) as client:
        task = await client.start_task("long")
        event = await page.event("tasks", lambda event: event["rows"])
        assert event["rows"][0]["name"] == "long" and event["states"]["working"] == 1
        await task.cancel()
        await page.event("tasks", lambda event: event["states"]["cancelled"] == 1)
        rows = {row["name"]: row for row in (await page.event("bounds"))["rows"]}
        assert rows["max_held"]["limit"] == app.core.budget.total
        assert rows["max_sessions"]["limit"] == 100_000 and rows["max_connections"]["used"] >= 1
        app.core.bounded("Limits.max_batch", "too many")
        reached = await page.event(
            "bounds", lambda event: any(row["name"] == "Limits.max_batch" for row in event["rows"])
        )
        assert [row for row in reached["rows"] if row["detail"] == "too many"]


async def test_upstreams_of_a_gateway_are_shown_with_their_health():
    one = make()
    gateway = Gateway({"good": one, "bad": "http://127.0.0.1:1/mcp"}, name="weather")
    async with served(gateway) as base, open_page(base) as page:

        def known(event: Any) -> bool:
            states = {row["name"]: row["state"] for row in event["rows"]}
            return states == {"good": "ready", "bad": "down"}

        event = await page.event("upstreams", known)
        rows = {row["name"]: row for row in event["rows"]}
        assert rows["good"]["protocol"] == "2026-07-28" and rows["good"]["reason"] is None
        assert rows["bad"]["reason"] and rows["bad"]["tries"] >= 1


async def test_logs_reach_the_page_from_any_thread_and_still_reach_others(
    caplog: pytest.LogCaptureFixture,
):
    app = make()
    async with served(app) as base, open_page(base) as page:
        logger = logging.getLogger("application")
        await asyncio.to_thread(logger.warning, "from a %s", "thread")
        event = await page.event("logs", lambda e: any("thread" in r["text"] for r in e["rows"]))
        row = next(row for row in event["rows"] if "thread" in row["text"])
        assert row["logger"] == "application" and row["level"] == "WARNING"
        async with open_page(base) as second:
            await second.event("logs", lambda e: any("thread" in r["text"] for r in e["rows"]))
    assert "from a thread" in caplog.text
    (console,) = app.web.consoles.values()
    await eventually(lambda: console.watching.logs not in logging.getLogger().handlers)


async def test_nothing_is_kept_when_no_page_is_open():
    app = make()
    async with served(app) as base, Client(mcp(base)) as client:
        async with open_page(base) as page:
            await client.call_tool("forecast", {"city": "Oslo"})
            await page.event("calls", lambda event: event["rows"])
        watch = watch_of(app)
        (console,) = app.web.consoles.values()
        await eventually(lambda: console.watching._live is None)
        before = watch.calls
        await client.call_tool("forecast", {"city": "Oslo"})
        assert watch.calls == before, "a call without a page is not looked at"
        assert not watch.kept and not watch._fresh and console.watching._timer is None
        async with open_page(base) as page:
            await page.event("pulse", lambda event: event["totals"]["calls"] == watch.calls)


async def test_a_wire_that_is_restarted_keeps_its_console():
    app = make()
    async with served(app) as base, open_page(base):
        before = app.core.observer
        (console,) = app.web.consoles.values()
        (wire,) = [path for path, _ in app.tree().walk() if path[0] == "wires" and len(path) == 2]
        app.parts.root.kill(*wire)

        def is_back() -> bool:
            node = app.tree().find(*wire)
            return node is not None and node.restarts == 1 and node.state == "running"

        await eventually(is_back)
        assert list(app.web.consoles.values()) == [console] and app.core.observer is before


async def test_calls_beyond_what_is_noted_are_counted_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mcpearl.console.watch.MAX_TIMES", 2)
    app = Server("busy")

    @app.tool
    async def forecast(city: str) -> str:
        return f"sun in {city}"

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    async with served(app) as base, Client(mcp(base)) as client, open_page(base) as page:
        await client.call_tool("forecast", {"city": "Oslo"})  # the client lists the tools, too
        watch, before = watch_of(app), watch_of(app).calls
        for _ in range(100):
            await client.call_tool("forecast", {"city": "Oslo"})
        assert (await client.call_tool("fail", {})).is_error
        assert (watch.calls - before, watch.outcomes["tool_error"]) == (101, 1)
        await page.event("pulse", lambda event: event["totals"]["calls"] == before + 101)


# Under load, without a server


class _Call:
    method = "tools/call"

    def __init__(self, name: str, session: str | None = None, trace: str | None = None) -> None:
        parent = None if trace is None else f"00-{trace}-b7ad6b7169203331-01"
        self.params = type("P", (), {"name": name, "meta": {"traceparent": parent}})()
        self.outlet = type("O", (), {"session_id": session})()
        self.caller = type("C", (), {"client": None, "principal": None})()
        self.raw = b"{}"


def test_a_busy_server_notes_a_bounded_number_of_calls_and_failures_first():
    watch = LiveWatch(payloads=False)
    watch.begin()
    good: Any = _Call("a")
    bad: Any = _Call("b")
    for _ in range(10_000):
        watch.call_ended(1.0, good, "result", 1, None)
    for _ in range(10):
        watch.call_ended(1.0, bad, "error", 1, None)
    fresh, missed = watch.take()
    assert len(fresh) == ROOM + 10 and missed == 10_000 - ROOM
    assert [call.outcome for call in fresh[-10:]] == ["error"] * 10
    for _ in range(100):
        for _ in range(ROOM + ROOM_FAILED + 50):
            watch.call_ended(1.0, bad, "error", 1, None)
        assert len(watch.take()[0]) == ROOM + ROOM_FAILED
    assert len(watch.kept) == KEPT


@pytest.mark.parametrize("by", ["session", "trace", "name"])
def test_what_a_page_follows_is_noted_when_others_are_not(by: Any):
    watch = LiveWatch(payloads=False)
    watch.begin()
    trace = "0af7651916cd43dd8448eb211c80319c"
    followed = {"session": "s" * 10, "trace": trace, "name": "wanted"}[by]
    watch.follow({(by, followed)})
    other: Any = _Call("other")
    wanted: Any = _Call("wanted", "s" * 20, trace)
    for call in [*[other] * ROOM, wanted, other]:
        watch.call_ended(1.0, call, "result", 1, None)
    fresh, missed = watch.take()
    assert (fresh[-1].name, missed) == ("wanted", 1)
    assert fresh[-1].trace == trace and fresh[-1].session == "s" * 10


def test_times_are_measured_for_a_bounded_number_of_calls():
    watch = LiveWatch(payloads=False)
    call: Any = _Call("a")
    call.noted, call.batch = 1.0, None
    result = CallToolResult(content=[])
    watch.answered(call, result, 1)
    assert watch.take_times() == [] and watch.calls == 0, "no page was open"
    watch.begin()
    for _ in range(MAX_TIMES + 10):
        watch.answered(call, result, 1)
    watch.answered(call, CallToolResult(content=[], is_error=True), 1)
    assert watch.calls == MAX_TIMES + 11 and watch.outcomes["tool_error"] == 1
    times = watch.take_times()
    assert len(times) == MAX_TIMES and times == sorted(times) and watch.take_times() == []
    watch.take()
    watch.answered(call, result, 1)
    assert len(watch.take_times()) == 1, "in the next interval calls are measured again"
