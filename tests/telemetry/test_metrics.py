"""Metrics: what is counted, how it is read by Prometheus, and that clients cannot make it grow."""

import asyncio
import math
from typing import Any

import msgspec
import pytest

from mcpearl import Client, Context, Gateway, McpError, Server, ServerExtension, ToolError
from mcpearl.runtime import clock
from mcpearl.runtime.observer import MOST_IN_ROW, Row
from mcpearl.server.connection import ServerConnection
from mcpearl.server.extensions import method
from mcpearl.telemetry.metrics import BOUNDS, OTHER, Metrics, MetricsSnapshot
from mcpearl.telemetry.prometheus import METRICS, render
from mcpearl.telemetry.recent import RecentCalls
from mcpearl.testing.clock import MovableClock
from mcpearl.transports.null import NullTransport
from mcpearl.types import CallToolResult, RequestParams, Result
from tests.server.wire import ERAS, wire
from tests.transports.raw_http import modern, serving
from tests.waiting import eventually

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
OPERATION = "mcp_server_operation_duration_seconds"


def read(text: bytes) -> Samples:
    """The samples of a page, by name and labels, as Prometheus' own parser sees them."""
    from prometheus_client.parser import text_string_to_metric_families

    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def make_app(**options: Any) -> Server:
    app = Server("measured", **options)

    @app.tool
    async def work(seconds: float = 0) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.tool
    async def refuse() -> str:
        raise McpError(-1, "never")

    @app.prompt
    def greet() -> str:
        return "hello"

    app.add_resource("a://1", lambda: "x", name="a")
    return app


@pytest.mark.parametrize("version", ERAS)
async def test_calls_are_counted_by_method_tool_and_outcome(version: str) -> None:
    app = make_app()
    measuring = app.measure()
    async with wire(app, version) as client:
        for _ in range(3):
            await client.call("work")
        await client.call("fail")
        await client.call("refuse")
        await client.ask("prompts/get", {"name": "greet"})
        await client.ask("resources/read", {"uri": "secret://of/a/client"})
        page = await render(measuring.snapshot())
    samples = read(page)
    call = {"mcp_method_name": "tools/call"}
    name = f"{OPERATION}_count"
    assert value(samples, name, **call, gen_ai_tool_name="work") == 3
    assert value(samples, name, **call, gen_ai_tool_name="fail", error_type="tool_error") == 1
    assert value(samples, name, **call, gen_ai_tool_name="refuse", error_type=OTHER) == 1
    assert value(samples, name, mcp_method_name="prompts/get", gen_ai_prompt_name="greet") == 1
    error = "-32002" if version == ERAS[0] else "-32602"
    assert value(samples, name, mcp_method_name="resources/read", error_type=error) == 1
    assert value(samples, "mcpearl_answer_bytes_total", **call, gen_ai_tool_name="work") > 100
    assert value(samples, "mcpearl_sessions", wire="memory") == 1
    assert value(samples, "mcpearl_sessions_total", wire="memory") == 1
    assert value(samples, "mcpearl_calls_in_flight") == 0
    assert value(samples, "process_resident_memory_bytes") > 1e6
    assert b"secret" not in page


async def test_durations_are_in_the_buckets_of_the_conventions() -> None:
    app = make_app()
    measuring = app.measure()
    async with wire(app) as client:
        await client.call("work", {"seconds": 0.03})
        samples = read(await render(measuring.snapshot()))
    labels = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "work"}
    buckets = {
        float(dict(labelled)["le"]): count
        for (name, labelled), count in samples.items()
        if name == f"{OPERATION}_bucket" and labels.items() <= dict(labelled).items()
    }
    assert sorted(buckets) == [*BOUNDS, math.inf]
    assert buckets[0.02] == 0
    assert buckets[math.inf] == 1
    assert value(samples, f"{OPERATION}_sum", **labels) >= 0.03


async def test_names_that_clients_make_up_are_one_series() -> None:
    app = make_app()
    measuring = app.measure()
    async with wire(app) as client:
        for number in range(300):
            await client.call(f"made-up-{number}")
            await client.ask("prompts/get", {"name": f'"\n\\{number}'})
        await client.call("refuse")
        samples = read(await render(measuring.snapshot()))
    assert measuring.metrics.series < 8
    unknown = {"mcp_method_name": "tools/call", "gen_ai_tool_name": OTHER, "error_type": "-32602"}
    assert value(samples, f"{OPERATION}_count", **unknown) == 300


@pytest.mark.parametrize("version", ERAS)
async def test_what_the_protocol_answers_and_refuses_is_counted(version: str) -> None:
    app = make_app()
    measuring = app.measure()
    is_legacy = version == ERAS[0]
    asked = "ping" if is_legacy else "server/discover"
    async with wire(app, version) as client:
        await client.ask(asked)
        for number in range(300):
            await client.ask(f'no/such{number}"}}\n\\ 1\nmade_up 1')
        await client.ask("x" * 100_000)
        await client.ask("tools/call", {"name": 5})
        client.raw(b"{not json")
        await client.ask(asked)
        page = await render(measuring.snapshot())
    samples = read(page)
    name = f"{OPERATION}_count"
    assert value(samples, name, mcp_method_name=asked) == 2
    assert value(samples, name, mcp_method_name=OTHER, error_type="-32601") == 301
    assert value(samples, name, mcp_method_name=OTHER, error_type="-32700") == 1
    assert value(samples, name, mcp_method_name="tools/call", error_type="-32602") == 1
    if is_legacy:
        assert value(samples, name, mcp_method_name="initialize") == 1
    assert measuring.metrics.series < 8
    assert b"made_up" not in page


async def test_what_is_refused_over_http_is_counted() -> None:
    app = make_app()
    async with serving(app, metrics="/metrics") as client:
        for path in ("/a", "/b"):
            assert (await client.request("GET", {}, path=path)).status == 404
        assert (await client.request("PUT", {})).status == 405
        headers, body = modern("server/discover", {})
        assert (await client.post(body, headers)).status == 200
        headers, body = modern("no/such", {})
        assert (await client.post(body, headers)).status == 404
        page = (await client.request("GET", {}, path="/metrics")).body
    samples = read(page)
    assert value(samples, "mcpearl_http_refused_total", status="405") == 1
    assert value(samples, "mcpearl_http_refused_total", status="404") >= 2
    name = f"{OPERATION}_count"
    assert value(samples, name, mcp_method_name="server/discover") == 1
    assert value(samples, name, mcp_method_name=OTHER, error_type="-32601") == 1


async def test_names_that_a_server_accepts_are_bounded_too() -> None:
    metrics = Metrics(max_series=5)

    class Anything:
        method = "tools/call"

        def __init__(self, name: str) -> None:
            self.params = self
            self.name = name

    for number in range(50):
        call = Anything(f'na"me\n{number}')
        metrics.call_ended(0.0, call, "result", 1, None)
    snapshot = metrics.snapshot()
    assert len(snapshot.calls) == 6
    samples = read(await render(snapshot))
    other = {"mcp_method_name": OTHER, "error_type": OTHER}
    assert value(samples, f"{OPERATION}_count", **other) == 45
    odd = {"mcp_method_name": "tools/call", "gen_ai_tool_name": 'na"me\n3'}
    assert value(samples, f"{OPERATION}_count", **odd) == 1


async def test_a_scrape_over_http_shows_what_is_open() -> None:
    app = make_app(max_held=100_000_000)
    async with serving(app, metrics="/metrics") as client:
        session = await client.initialize()
        stream = await session.get()
        await client.call("work")
        answer = await client.request("GET", {}, path="/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        samples = read(answer.body)
        stream.close()
    assert value(samples, "mcpearl_sessions", wire="http") == 1
    assert value(samples, "mcpearl_connections", wire="http") >= 2
    assert value(samples, "mcpearl_streams") == 1
    assert value(samples, "mcpearl_http_requests") == 1
    assert value(samples, "mcpearl_ready") == 1
    assert value(samples, "mcpearl_restarts", part="bus") == 0
    assert value(samples, "mcpearl_held_bytes_limit") == 100_000_000
    names = {name for name, _ in samples}
    known = {metric.name for metric in METRICS.values()}
    known |= {f"{name}_{end}" for name in known for end in ("bucket", "sum", "count")}
    assert names <= known, "every metric is in the table"


async def test_what_has_ended_is_shown_as_0() -> None:
    """A series that is gone would be a gap in a graph, and in a sum."""
    app = make_app()
    async with serving(app, metrics="/metrics") as client:
        session = await client.initialize()
        assert (await session.delete()).status == 204
        samples = read((await client.request("GET", {}, path="/metrics")).body)
    assert value(samples, "mcpearl_sessions", wire="http") == 0


async def test_every_kind_of_number_is_on_the_page_of_a_live_gateway() -> None:
    """Bytes, queues, parts, upstreams, tasks, subscriptions, restarts, memory: one name for each."""
    behind = make_app()
    app = Gateway({"behind": behind}, telemetry=False, eager=True)

    @app.tool(task=True)
    async def long() -> str:
        await asyncio.Event().wait()
        return "never"

    async with serving(app, metrics="/metrics") as client:
        await client.initialize()
        assert (await client.call("behind__work")).status == 200
        samples = read((await client.request("GET", {}, path="/metrics")).body)
    assert value(samples, "mcpearl_upstreams", state="ready") == 1
    assert value(samples, "mcpearl_received_bytes_total", wire="http") > 100
    assert value(samples, "mcpearl_sent_bytes_total", wire="http") > 100
    assert value(samples, "mcpearl_part_up", part="bus") == 1
    names = {name for name, _ in samples}
    for name in (
        f"{OPERATION}_bucket",
        "mcpearl_calls_in_flight",
        "mcpearl_sessions",
        "mcpearl_streams",
        "mcpearl_subscriptions",
        "mcpearl_connections",
        "mcpearl_sessions_total",
        "mcpearl_answer_bytes_total",
        "mcpearl_held_bytes",
        "mcpearl_threads_waiting",
        "mcpearl_isolated_waiting",
        "mcpearl_restarts",
        "mcpearl_parts_down",
        "mcpearl_tasks",
        "mcpearl_loop_lag_seconds",
        "process_resident_memory_bytes",
    ):
        assert name in names, name


async def test_bytes_are_counted_by_wire() -> None:
    app = make_app()
    measuring = app.measure()
    async with app.serving("tcp", port=0) as url:
        async with Client(url, telemetry=False) as client:
            await client.call_tool("work")
            during = read(await render(measuring.snapshot()))
        await eventually(lambda: not app.connections)
        after = read(await render(measuring.snapshot()))
    for name in ("mcpearl_received_bytes_total", "mcpearl_sent_bytes_total"):
        assert 100 < value(during, name, wire="tcp") <= value(after, name, wire="tcp") < 10_000


async def test_bytes_over_http_are_counted_one_by_one() -> None:
    """Heads, bodies, streams and refusals; a WebSocket counts for itself once it has begun."""
    app = make_app()
    async with serving(app, health="/health", websocket="/ws", metrics="/metrics") as client:
        assert app.measuring is not None
        metrics = app.measuring.metrics

        def counted(wire: str = "http") -> tuple[float, float]:
            counters = metrics.snapshot().counters
            return counters["received"].get(wire, 0), counters["sent"].get(wire, 0)

        async def exchange(request: bytes) -> tuple[float, float]:
            before = counted()
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(request)
            answer = await reader.read()  # until the server closes the connection
            writer.close()
            after = counted()
            assert after[0] - before[0] == len(request)
            assert after[1] - before[1] == len(answer)
            return len(request), len(answer)

        host = b"host: 127.0.0.1:%d\r\n" % client.port
        whole = b"GET /health/live HTTP/1.1\r\n" + host + b"connection: close\r\n\r\n"
        await exchange(whole)
        await exchange(whole.replace(b"/health/live", b"/nothing"))
        await exchange(b"this is not HTTP\r\n\r\n")
        before = counted()
        async with Client(f"ws://127.0.0.1:{client.port}/ws", telemetry=False) as other:
            upgraded = counted()
            for _ in range(20):
                await other.call_tool("work")
            assert counted() == upgraded
            assert min(counted("websocket")) > 20 * 100
        assert upgraded[0] - before[0] < 2_000
        session = await client.initialize()
        stream = await session.get()
        before = counted()
        app.notify_list_changed("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
        assert counted()[1] > before[1]
        stream.close()


async def test_servers_that_are_mounted_by_address_are_upstreams_too() -> None:
    """Also those that are mounted in a server that is mounted."""
    behind, inner, app = make_app(), Server("inner", telemetry=False), Server("x", telemetry=False)
    measuring = app.measure()
    async with behind.serving("http", port=0) as url:
        app.mount("one", url)
        inner.mount("two", url)
        app.mount("inner", inner)
        async with app.running():

            async def states() -> dict[str, float]:
                samples = read(await render(measuring.snapshot()))
                return {
                    dict(labels)["state"]: number
                    for (name, labels), number in samples.items()
                    if name == "mcpearl_upstreams"
                }

            async def are_ready() -> bool:
                return await states() == {"ready": 2}

            await eventually(are_ready)
            app.unmount("one")
            assert await states() == {"ready": 1}


async def test_a_page_with_many_series_lets_calls_through() -> None:
    """10,000 series are rendered in slices, between which calls run."""
    app = make_app()
    metrics = app.measure().metrics
    for number in range(600):
        metrics._admit("tools/call", f"tool-{number}", "", "result").add(0.001, 100)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    meanwhile = asyncio.ensure_future(others())
    samples = read(await render(app.measure().snapshot()))
    meanwhile.cancel()
    assert len(samples) > 10_000
    assert turns >= 15


async def test_bounds_and_rates_are_counted() -> None:
    from mcpearl import RateLimit

    app = make_app(rate=RateLimit(1, per=60))
    measuring = app.measure()
    async with wire(app) as client:
        for _ in range(3):
            await client.call("work")
        samples = read(await render(measuring.snapshot()))
    assert value(samples, "mcpearl_bounds_reached_total", bound="Server.rate") == 2
    limited = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "work", "error_type": "-32010"}
    assert value(samples, f"{OPERATION}_count", **limited) == 2


async def test_without_metrics_nothing_is_counted() -> None:
    app = make_app(telemetry=False)
    async with wire(app) as client:
        await client.call("work")
    assert app.measuring is None
    assert app.core.observer is None


def test_snapshots_of_processes_are_added_up() -> None:
    one = MetricsSnapshot(
        {("a", "", ""): [1.0, 2, 1, 0]}, {}, {"bounds": {"x": 1}}, {"lag": {"": 0.5}, "tasks": {}}
    )
    two = MetricsSnapshot(
        {("a", "", ""): [0.5, 3, 0, 1]}, {}, {"bounds": {"x": 2}}, {"lag": {"": 0.2}}
    )
    one.add(two)
    assert one.calls == {("a", "", ""): [1.5, 5, 1, 1]}
    assert one.counters == {"bounds": {"x": 3}}
    assert one.gauges["lag"] == {"": 0.5}


async def test_the_last_calls_are_kept() -> None:
    recent = RecentCalls(limit=2)
    app = make_app(observer=[recent])
    async with Client(app) as client:
        for tool in ("work", "fail", "work"):
            await client.call_tool(tool)
    calls = [call for call in recent.calls if call.method == "tools/call"]
    assert [(call.name, call.outcome) for call in calls] == [
        ("fail", "tool_error"),
        ("work", "result"),
    ]
    assert recent.total >= 3


@pytest.mark.parametrize("version", ERAS)
async def test_a_method_that_answers_as_a_tool_does_is_counted_as_itself(version: str) -> None:
    class Again(ServerExtension):
        identifier = "com.example/again"

        @method("again/call", undeclared=True)
        async def call(self, params: RequestParams, ctx: Context) -> Result:
            return CallToolResult(content=[])

    metrics = Metrics()
    app = make_app(extensions=[Again()], observer=metrics, telemetry=False)
    async with wire(app, version) as client:
        for _ in range(2):  # the second call of the tool is counted the quick way
            await client.call("work", {})
            assert (await client.ask("again/call"))["result"]["content"] == []
        await client.call("work", {})
    samples = read(await render(metrics.snapshot()))
    counts = {labels: n for (name, labels), n in samples.items() if name == f"{OPERATION}_count"}
    others = [n for labels, n in counts.items() if "gen_ai_tool_name" not in dict(labels)]
    assert 2 in others


@pytest.mark.parametrize("version", ERAS)
async def test_a_reader_in_between_sees_every_call_that_has_ended(version: str) -> None:
    metrics = Metrics()
    app = make_app(observer=metrics, telemetry=False)

    @app.tool
    async def other() -> int:
        return 1

    async with wire(app, version) as client:
        sizes = []
        for number in range(1, 6):
            for name in ("work", "other"):
                answer = await client.call(name, {})
                assert "error" not in answer
            calls = metrics.snapshot().calls
            for name in ("work", "other"):
                seconds, size, *buckets = calls["tools/call", name, ""]
                assert sum(buckets) == number
                assert seconds > 0
            sizes.append(size)
        assert sizes == [size * sizes[0] for size in range(1, 6)]


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_times_fall_into_the_same_buckets_one_by_one_and_together(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    alone, together = Metrics(), Metrics()
    row = Row(together.add_up, together.answered, together.keep)
    row.begin()
    for seconds in [*(0.9 * bound for bound in BOUNDS), 0.001, 0.011, 400.0, 0.0]:
        for name in names:
            one = Row(alone.add_up, alone.answered, alone.keep)
            one.begin()
            now += seconds
            one.add_first(name, 7)
            one.settle()
            if row.tool == name:
                row.times.append(now - row.since)
                row.since = now
                row.size += 7
            else:
                row.add_first(name, 7)
    row.settle()
    for name in names:
        seconds, *counted = alone.snapshot().calls["tools/call", name, ""]
        assert together.snapshot().calls["tools/call", name, ""] == [
            pytest.approx(seconds),
            *counted,
        ]
        buckets = counted[1:]
        assert buckets == [3, 2, *[1] * (len(BOUNDS) - 2), 1]


class Kept(NullTransport):
    """Keeps the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def send(self, message: bytes) -> None:
        self.sent.append(msgspec.json.decode(message))


BLOCKED = 20.0  # seconds; the clock is moved by them


@pytest.mark.parametrize("traced", [False, True])
async def test_calls_that_are_read_together_are_each_counted_with_their_own_time(
    traced: bool, clock: MovableClock
) -> None:
    metrics = Metrics()
    app = Server("measured", observer=metrics, telemetry=traced)

    @app.tool
    async def work() -> str:
        return "done"

    @app.tool
    async def blocks() -> str:
        clock.move(BLOCKED)
        return "done"

    @app.tool
    async def waits() -> str:
        await asyncio.sleep(0.03)
        return "done"

    @app.tool
    async def fails() -> str:
        raise ToolError("no")

    asked = ["work", "waits", "work", "blocks", "work", "fails", "work", "unknown", "work"]
    messages: list[dict[str, Any]] = [
        {"id": at, "method": "tools/call", "params": {"name": name, "arguments": {}}}
        for at, name in enumerate(asked)
    ]
    messages[2:2] = [{"id": "list", "method": "tools/list"}, {"id": "ping", "method": "ping"}]
    messages[7:7] = [{"method": "notifications/cancelled", "params": {"requestId": "none"}}]
    traced_call = {"traceparent": f"00-{1:032x}-{2:016x}-01"}
    messages[5]["params"]["_meta"] = traced_call
    client = {"name": "test", "version": "1"}
    initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    async with app.running():
        transport = Kept()
        connection = ServerConnection(app.core, transport)
        connection.received(
            [
                msgspec.json.encode({"jsonrpc": "2.0", **message})
                for message in (
                    {"id": "begin", "method": "initialize", "params": initialize},
                    {"method": "notifications/initialized"},
                    *messages,
                )
            ]
        )
        await eventually(lambda: len(transport.sent) == len(asked) + 3)
        calls = {
            key[1:]: (series[0], sum(series[2:3]), sum(series[3:]))
            for key, series in metrics.snapshot().calls.items()
            if key[0] == "tools/call"
        }
        listed = metrics.snapshot().calls["tools/list", "", ""]
        connection.lost(None)
    took, short, longer = calls.pop(("work", ""))
    assert short + longer == 5
    assert took < BLOCKED, "the time of one that blocks is not theirs"
    for name, least in (("blocks", BLOCKED), ("waits", 0.03)):
        took, short, longer = calls.pop((name, ""))
        assert took >= least
        assert (short, longer) == (0, 1)
    assert sum(calls.pop(("fails", "tool_error"))[1:]) == 1
    assert [sum(series[1:]) for series in calls.values()] == [1], "of the name that is not known"
    assert sum(listed[2:]) == 1


class Told(Metrics):
    """Metrics that remember of which tools they were told call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def answered(self, call: Any, answer: Any, size: int) -> None:
        self.told.append(call.params.name)
        super().answered(call, answer, size)


async def test_calls_over_http_are_added_up_and_each_counted_with_its_own_time(
    clock: MovableClock,
) -> None:
    metrics = Told()
    app = Server("measured", observer=metrics, telemetry=False)

    @app.tool
    async def work() -> str:
        return "done"

    @app.tool
    async def blocks() -> str:
        clock.move(BLOCKED)
        return "done"

    @app.tool
    async def fails() -> str:
        raise ToolError("no")

    @app.tool
    async def looks() -> int:
        series = metrics.snapshot().calls.get(("tools/call", "work", ""))
        return 0 if series is None else sum(series[2:])

    many = 2 * MOST_IN_ROW + 5
    async with serving(app) as client:
        for number in range(many):
            await client.call("work")
            clock.move(BLOCKED)  # the time between two calls is not theirs
            if number == MOST_IN_ROW // 2:
                for name in ("blocks", "fails", "work", "looks"):
                    answer = await client.call(name)
                assert answer.json["result"]["structuredContent"] == {"result": number + 2}
        calls = {
            key[1:]: (series[0], sum(series[2:3]), sum(series[3:]))
            for key, series in metrics.snapshot().calls.items()
            if key[0] == "tools/call"
        }
    took, short, longer = calls.pop(("work", ""))
    assert short + longer == many + 1
    assert took < BLOCKED
    took, *counted = calls.pop(("blocks", ""))
    assert took >= BLOCKED
    assert counted == [0, 1]
    assert sum(calls.pop(("fails", "tool_error"))[1:]) == 1
    assert list(calls) == [("looks", "")]
    assert metrics.told == ["fails"], "of those that succeed at once it is told later"


async def test_calls_that_are_not_added_up_yet_are_few() -> None:
    metrics = Metrics()
    rows: list[Row] = []
    for _ in range(1000):
        row = Row(metrics.add_up, metrics.answered, metrics.keep)
        row.make_room()
        row.begin()
        row.add_first("other", 7)
        rows.append(row)
    assert sum(len(row.times) for row in rows) <= 256
    assert sum(metrics.snapshot().calls["tools/call", "other", ""][2:]) == 1000
    assert not any(row.times for row in rows)
