"""A server mounted in another: everything it does goes through, in both eras."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpearl import Client, Context, Handler, McpError, Server, ServerExtension, Tasks
from mcpearl.server.extensions import method
from mcpearl.testing import Answers, Heard
from mcpearl.types import (
    CallToolResult,
    ElicitResult,
    ListToolsResult,
    RequestParams,
    Result,
    TextContent,
    Tool,
)
from tests.server.wire import ERAS, LEGACY, MODERN, text_of, wire
from tests.waiting import eventually


def weather() -> Server:
    app = Server("weather-server", "1.0.0")

    @app.tool
    async def forecast(city: str, days: int = 1) -> list[str]:
        """What the weather will be."""
        return [f"sun in {city}"] * days

    @app.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which city?", str)
        return f"{answer.action}: {answer.data}"

    @app.tool
    async def steps(ctx: Context) -> str:
        for step in range(3):
            await ctx.progress(step + 1, 3)
        await ctx.info("done")
        return "ok"

    @app.resource("weather://stations")
    def stations() -> str:
        return "oslo"

    @app.resource("weather://{city}/now")
    def now(city: str) -> str:
        return f"sun in {city}"

    @app.prompt
    def brief(city: str) -> str:
        return f"Describe {city}"

    @app.complete("brief", "city")
    def cities(value: str) -> list[str]:
        return [each for each in ("Oslo", "Bergen") if each.startswith(value)]

    @app.complete("weather://{city}/now", "city")
    def more(value: str) -> list[str]:
        return ["Lima"]

    return app


def outer(**options: Any) -> Server:
    app = Server("outer", **options)

    @app.tool
    def own() -> str:
        return "mine"

    return app


def client(app: Server, version: str, **options: Any) -> Client:
    return Client(app, protocol=version, **options)


@pytest.mark.parametrize("version", ERAS)
async def test_everything_a_part_offers_is_reached_by_its_names(version: str) -> None:
    app = outer()
    app.mount("weather", weather())
    async with client(app, version) as c:
        names = [tool.name async for tool in c.tools()]
        assert names == ["own", "weather__forecast", "weather__ask", "weather__steps"]
        assert (await c.call_tool("own")).data == "mine"
        result = await c.call_tool("weather__forecast", {"city": "Oslo", "days": 2})
        assert result.data == ["sun in Oslo"] * 2
        assert [r.uri async for r in c.resources()] == ["weather://stations"]
        assert [t.uri_template async for t in c.resource_templates()] == ["weather://{city}/now"]
        assert (await c.read_resource("weather://stations")).contents[0].text == "oslo"
        assert (await c.read_resource("weather://lima/now")).contents[0].text == "sun in lima"
        assert [p.name async for p in c.prompts()] == ["weather__brief"]
        got = await c.get_prompt("weather__brief", {"city": "Oslo"})
        assert got.messages[0].content.text == "Describe Oslo"
        done = await c.complete({"type": "ref/prompt", "name": "weather__brief"}, "city", "O")
        assert done.values == ["Oslo"]
        done = await c.complete(
            {"type": "ref/resource", "uri": "weather://{city}/now"}, "city", "L"
        )
        assert done.values == ["Lima"]
        with pytest.raises(McpError, match="Unknown tool: weather__nothing"):
            await c.call_tool("weather__nothing")
        with pytest.raises(McpError):
            await c.read_resource("weather:nothing/at/all")


@pytest.mark.parametrize("version", ERAS)
async def test_questions_progress_and_logs_of_a_part_reach_the_client(version: str) -> None:
    app = outer()
    app.mount("weather", weather())
    answers, heard = Answers(elicitation=[{"value": "Oslo"}]), Heard()
    async with client(app, version, **answers.options, **heard.options) as c:
        assert (await c.call_tool("weather__ask")).data == "accept: Oslo"
        await c.call_tool("weather__steps")
        await eventually(lambda: heard.texts == ["done"])
    answers.check()
    assert [each.progress for each in heard.progress] == [1, 2, 3]


@pytest.mark.parametrize("version", ERAS)
async def test_meta_and_trace_context_reach_a_part_of_a_part(version: str) -> None:
    inner, middle, app = Server("inner"), Server("middle"), outer()

    @inner.tool
    async def meta(ctx: Context) -> dict[str, Any]:
        return {key: ctx.meta.get(key) for key in ("traceparent", "x")}

    middle.mount("inner", inner)
    app.mount("middle", middle)
    given = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x": [1]}
    async with client(app, version) as c:
        assert (await c.call_tool("middle__inner__meta", meta=given)).data == given


async def test_a_state_of_a_part_is_bound_to_the_name_the_client_called() -> None:
    app = outer()
    app.mount("one", weather())
    app.mount("two", weather())
    async with wire(app, MODERN) as c:
        asked = (await c.call("one__ask", {}))["result"]
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        again: dict[str, Any] = {
            "inputResponses": {key: {"action": "accept", "content": {"value": "Oslo"}}},
            "requestState": asked["requestState"],
        }
        refused = await c.ask("tools/call", {"name": "two__ask", "arguments": {}, **again})
        assert "another call" in refused["error"]["message"]
        done = await c.ask("tools/call", {"name": "one__ask", "arguments": {}, **again})
        assert done["result"]["structuredContent"] == {"result": "accept: Oslo"}


@pytest.mark.parametrize("version", ERAS)
async def test_subscriptions_reach_through_to_the_part(version: str) -> None:
    app, inner = outer(), weather()
    app.mount("weather", inner)
    heard: list[Any] = []
    async with client(app, version, on_notification=lambda n: heard.append(n)) as c:
        await c.subscribe("weather://stations")
        inner.notify_resource_updated("weather://stations")
        await eventually(lambda: [n.params.uri for n in heard] == ["weather://stations"])
        await c.unsubscribe("weather://stations")


async def test_mounting_at_run_time_is_announced_and_so_is_what_changes_in_a_part() -> None:
    app, inner = outer(), weather()
    changes: list[str] = []
    async with client(app, LEGACY, on_notification=lambda n: changes.append(n.method)) as c:
        app.mount("weather", inner)
        await eventually(lambda: "notifications/tools/list_changed" in changes)
        assert (await c.call_tool("weather__forecast", {"city": "Rome"})).data == ["sun in Rome"]
        changes.clear()
        inner.add_tool(lambda: "new", name="fresh")
        await eventually(lambda: "notifications/tools/list_changed" in changes)
        assert (await c.call_tool("weather__fresh")).text == "new"
        inner.remove_tool("fresh")
        with pytest.raises(McpError, match="Unknown tool"):
            await c.call_tool("weather__fresh")
        changes.clear()
        app.unmount("weather")
        await eventually(lambda: "notifications/tools/list_changed" in changes)
        assert [tool.name async for tool in c.tools()] == ["own"]
        with pytest.raises(McpError, match="Unknown tool"):
            await c.call_tool("weather__forecast", {"city": "Rome"})
    assert not inner.core.enclosing


async def test_the_lifespan_of_a_part_lasts_as_long_as_it_is_mounted_and_the_server_runs() -> None:
    story: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        story.append(f"{server.name} up")
        yield f"of {server.name}"
        story.append(f"{server.name} down")

    inner = Server("inner", lifespan=lifespan)

    @inner.tool
    async def value(ctx: Context) -> str:
        return ctx.lifespan

    app = Server("outer", lifespan=lifespan)

    @app.tool
    async def mine(ctx: Context) -> str:
        return ctx.lifespan

    app.mount("first", inner)
    later = Server("later", lifespan=lifespan)
    later.add_tool(value, name="value")
    async with Client(app) as c:
        assert story == ["outer up", "inner up"]
        assert (await c.call_tool("first__value")).data == "of inner"
        assert (await c.call_tool("mine")).data == "of outer"
        app.mount("second", later)
        assert (await c.call_tool("second__value")).data == "of later"
        app.unmount("second")
        await eventually(lambda: story[-1] == "later down")
    assert story[-2:] == ["inner down", "outer down"]


async def test_a_part_that_cannot_start_at_run_time_costs_its_own_calls() -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    app = outer()
    async with Client(app) as c:
        bad = Server("bad", lifespan=broken)
        bad.add_tool(lambda: "never", name="x")
        app.mount("bad", bad)
        with pytest.raises(McpError, match="`bad` is not there: it could not be started: no data"):
            await c.call_tool("bad__x")
        assert (await c.call_tool("own")).data == "mine"
        listed = await c.list_tools()
        assert [tool.name for tool in listed.tools] == ["own"]
        assert "no database" in (listed.meta or {})["mcpearl/unavailable"]["bad"]


def losing_its_database(when: asyncio.Event) -> Server:
    """Return a server whose lifespan has a task that fails."""

    async def fail() -> None:
        await when.wait()
        raise ConnectionError("the database went away")

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(fail())
            yield "rows"
            following.cancel()

    inner = Server("inner", lifespan=lifespan)

    @inner.tool
    def at_once(ctx: Context) -> str:
        return ctx.lifespan

    @inner.tool
    async def in_a_task(ctx: Context) -> str:
        return ctx.lifespan

    @inner.prompt
    def brief() -> str:
        return "a prompt"

    @inner.resource("rows://all")
    def rows() -> str:
        return "a resource"

    return inner


GONE = "`rows` is not there: its lifespan failed: the database went away"


@pytest.mark.parametrize("version", ERAS)
async def test_a_part_whose_lifespan_fails_costs_its_own_calls(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    fails = asyncio.Event()
    app = outer()
    app.mount("rows", losing_its_database(fails))

    @app.tool
    async def read_inside(ctx: Context) -> str:
        return str(await ctx.read_resource("rows://all"))

    async with wire(app, version) as c:
        for name in ("rows__at_once", "rows__in_a_task"):
            assert text_of(await c.call(name)) == "rows"
        fails.set()
        await eventually(lambda: "the lifespan of `rows` failed" in caplog.text)
        refused = [
            await c.call("rows__at_once"),
            await c.call("rows__in_a_task"),
            await c.ask("prompts/get", {"name": "rows__brief"}),
            await c.ask("resources/read", {"uri": "rows://all"}),
        ]
        assert [each["error"]["message"] for each in refused] == [GONE] * 4
        assert GONE in str(await c.call("read_inside"))
        assert text_of(await c.call("own")) == "mine"
        listed = (await c.ask("tools/list"))["result"]
        assert [tool["name"] for tool in listed["tools"]] == ["own", "read_inside"]
        assert GONE in listed["_meta"]["mcpearl/unavailable"]["rows"]
    assert "failed while it was stopped" not in caplog.text


async def test_clients_are_notified_that_the_lifespan_of_a_part_failed() -> None:
    fails = asyncio.Event()
    app = outer()
    app.mount("rows", losing_its_database(fails))
    changes: list[str] = []
    async with client(app, LEGACY, on_notification=lambda n: changes.append(n.method)):
        fails.set()
        await eventually(lambda: "notifications/tools/list_changed" in changes)


async def test_a_lifespan_that_fails_is_that_of_every_mount_until_it_is_mounted_again() -> None:
    """The first server that mounted it holds it up; the second one is told as well."""
    fails = asyncio.Event()
    inner = losing_its_database(fails)
    apps = outer(), outer()
    for app in apps:
        app.mount("rows", inner)
    async with Client(apps[0]) as one, Client(apps[1]) as two:
        assert (await two.call_tool("rows__at_once")).data == "rows"
        fails.set()
        for each in (one, two):
            await eventually(lambda: inner.lifespan_value is None)
            with pytest.raises(McpError, match=GONE):
                await each.call_tool("rows__at_once")
        fails.clear()
        apps[1].unmount("rows")
        apps[1].mount("rows", inner)
        assert (await two.call_tool("rows__at_once")).data == "rows"
        with pytest.raises(McpError, match=GONE):
            await one.call_tool("rows__at_once")


async def test_a_server_that_masks_errors_does_not_say_why_a_part_failed() -> None:
    fails = asyncio.Event()
    inner = losing_its_database(fails)
    app = outer(mask_errors=True)
    app.mount("rows", inner)
    async with Client(app) as c:
        fails.set()
        await eventually(lambda: inner.lifespan_value is None)
        with pytest.raises(McpError, match=r"`rows` is not there: its lifespan failed \[-32603\]$"):
            await c.call_tool("rows__at_once")


async def test_a_part_that_cannot_start_with_the_server_ends_the_start() -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    app = outer()
    app.mount("bad", Server("bad", lifespan=broken))
    with pytest.raises(OSError, match="no database"):
        async with app.running():
            pytest.fail("never reached")


async def test_calls_in_flight_finish_after_unmounting() -> None:
    inner, go = Server("inner"), asyncio.Event()
    ended: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        ended.append("lifespan")

    inner = Server("inner", lifespan=lifespan)

    @inner.tool
    async def wait() -> str:
        await go.wait()
        ended.append("call")
        return "finished"

    app = outer()
    app.mount("inner", inner)
    async with Client(app) as c:
        call = asyncio.create_task(c.call_tool("inner__wait"))
        await eventually(lambda: app.mounts["inner"].calls == 1)
        app.unmount("inner")
        await asyncio.sleep(0)
        go.set()
        assert (await call).text == "finished"
        await eventually(lambda: ended == ["call", "lifespan"])


async def test_the_middleware_of_a_part_runs_inside_that_of_the_server() -> None:
    seen: list[Any] = []

    def noting(name: str) -> Any:
        async def middleware(ctx: Context, call_next: Any) -> Any:
            if ctx.method == "tools/call":
                seen.append((name, ctx.params.name))
                ctx.state[name] = True
            return await call_next()

        return middleware

    inner = Server("inner", middleware=[noting("inner")])

    @inner.tool
    async def state(ctx: Context) -> list[str]:
        return sorted(ctx.state)

    app = outer(middleware=[noting("outer")])
    app.mount("inner", inner)
    async with Client(app) as c:
        assert (await c.call_tool("inner__state")).data == ["inner", "outer"]
    assert seen == [("outer", "inner__state"), ("inner", "state")]


class Echo(Handler):
    async def list_tools(self, cursor: str | None, ctx: Context) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])

    async def call_tool(self, params: Any, ctx: Context) -> CallToolResult:
        text = f"{params.name} {bytes(params.arguments).decode()}"
        return CallToolResult(content=[TextContent(text=text)])


@pytest.mark.parametrize("version", ERAS)
async def test_a_handler_is_mounted_too(version: str) -> None:
    app = outer()
    app.mount("echo", Echo())
    async with client(app, version) as c:
        assert (await c.call_tool("echo__anything", {"a": 1})).text == 'anything {"a":1}'
        assert [tool.name async for tool in c.tools()] == ["own", "echo__echo"]
        assert (await c.call_tool("echo__echo", {})).text == "echo {}"


@pytest.mark.parametrize("version", ERAS)
async def test_servers_are_mounted_in_servers_that_are_mounted(version: str) -> None:
    middle = Server("middle")
    middle.mount("weather", weather())
    app = outer()
    app.mount("middle", middle)
    async with client(app, version, elicitation=lambda p: {"value": "Rome"}) as c:
        names = [tool.name async for tool in c.tools()]
        assert "middle__weather__forecast" in names
        result = await c.call_tool("middle__weather__forecast", {"city": "Oslo"})
        assert result.data == ["sun in Oslo"]
        assert (await c.call_tool("middle__weather__ask")).data == "accept: Rome"
        assert (await c.read_resource("weather://stations")).contents[0].text == "oslo"


async def test_names_that_are_not_safe_or_too_long_are_made_so_and_stay() -> None:
    inner = Server("inner")
    inner.add_tool(lambda: "dots", name="a.b")
    inner.add_tool(lambda: "long", name="n" * 100)
    app = Server("outer")
    app.mount("x", inner)
    async with Client(app) as c:
        names = [tool.name async for tool in c.tools()]
        assert all(len(name) <= 64 and name.replace("_", "").isalnum() for name in names)
        assert [(await c.call_tool(name)).text for name in names] == ["dots", "long"]
        app.mount("y", weather())
        assert [tool.name async for tool in c.tools()][:2] == names


async def test_names_that_collide_are_both_reached() -> None:
    inner = Server("inner")
    inner.add_tool(lambda: "part", name="x")
    app = Server("outer")
    app.add_tool(lambda: "own", name="part__x")
    app.mount("part", inner)
    async with Client(app) as c:
        names = [tool.name async for tool in c.tools()]
        assert names[0] == "part__x"
        assert len(set(names)) == 2
        assert [(await c.call_tool(name)).text for name in names] == ["own", "part"]


async def test_a_uri_of_two_parts_is_reached_at_both() -> None:
    app = outer()
    for name in ("a", "b"):
        part = Server(name)
        part.resource("config://app")(lambda name=name: f"of {name}")
        app.mount(name, part)
    heard: list[str] = []
    async with client(app, LEGACY, on_notification=lambda n: heard.append(n.params.uri)) as c:
        uris = [resource.uri async for resource in c.resources()]
        assert uris == ["config://app", "b+config://app"]
        contents = [(await c.read_resource(uri)).contents[0] for uri in uris]
        assert [(each.uri, each.text) for each in contents] == [
            ("config://app", "of a"),
            ("b+config://app", "of b"),
        ]
        assert (await c.read_resource("a+config://app")).contents[0].text == "of a"
        await c.subscribe("b+config://app")
        app.mounts["b"].part._server.notify_resource_updated("config://app")  # type: ignore[attr-defined]
        await eventually(lambda: heard == ["b+config://app"])


@pytest.mark.parametrize("version", ERAS)
async def test_a_tool_of_a_part_runs_as_a_task_of_the_server(version: str) -> None:
    inner = Server("inner")

    @inner.tool(task=Tasks())
    async def slow(ctx: Context, city: str) -> str:
        answer = await ctx.elicit("Sure?", bool)
        return f"{city} {ctx.task is not None} {answer.data}"

    app = outer()
    app.mount("inner", inner)
    async with client(app, version, elicitation=lambda p: {"value": True}) as c:
        task = await c.start_task("inner__slow", {"city": "Oslo"})
        assert (await task.result()).text == "Oslo True True"


async def test_extensions_of_a_part_are_announced_and_answered() -> None:
    class Audit(ServerExtension):
        identifier = "com.example/audit"

        @method("audit/read", undeclared=True)
        async def read(self, params: RequestParams, ctx: Context) -> Result:
            return Result(extra={"entries": [1]})

    app = outer()
    app.mount("audited", Server("audited", extensions=[Audit()]))
    async with client(app, MODERN) as c:
        assert "com.example/audit" in (c.server_capabilities.extensions or {})
        assert (await c.request("audit/read")).extra == {"entries": [1]}


async def test_lists_of_many_parts_come_in_pages_that_survive_changes() -> None:
    app = Server("outer", page_size=10)
    for part in range(4):
        inner = Server(f"p{part}", page_size=10)
        for tool in range(25):
            inner.add_tool(lambda: "x", name=f"t{tool}")
        app.mount(f"p{part}", inner)
    async with wire(app, LEGACY) as c:
        names, cursor = [], None
        while True:
            answer = await c.ask("tools/list", {} if cursor is None else {"cursor": cursor})
            names += [tool["name"] for tool in answer["result"]["tools"]]
            cursor = answer["result"].get("nextCursor")
            if cursor is None:
                break
            if len(names) >= 30 and "p1" in app.mounts:
                app.unmount("p1")
        assert len(names) == len(set(names))
        others = [name for name in names if not name.startswith("p1")]
        assert others == [f"p{part}__t{tool}" for part in (0, 2, 3) for tool in range(25)]
        assert 0 < len(names) - len(others) < 25
        for bad in ("x", "99999999999999999.", "1.nonsense", "²."):
            assert (await c.ask("tools/list", {"cursor": bad}))["error"]["code"] == -32602


def test_servers_are_not_mounted_in_each_other() -> None:
    outer, middle, inner = Server("outer"), Server("middle"), Server("inner")
    outer.mount("middle", middle)
    middle.mount("inner", inner)
    for other in (outer, middle, inner):
        with pytest.raises(ValueError, match="in itself"):
            inner.mount("other", other)
    assert not inner.mounts


def test_what_cannot_be_mounted_is_refused_with_the_reason() -> None:
    app = outer()
    app.mount("weather", weather())
    for name, reason in (
        ("weather", "mounted already"),
        ("a b", "letters"),
        ("a__b", "letters"),
        ("", "letters"),
    ):
        with pytest.raises(ValueError, match=reason):
            app.mount(name, Server("x"))
    with pytest.raises(TypeError, match="is a name"):
        app.mount(weather(), "weather")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="in itself"):
        app.mount("me", app)
    with pytest.raises(KeyError, match="what is mounted: `weather`"):
        app.unmount("wether")


async def test_a_refused_elicitation_of_a_part_is_answered_as_it_would_be_directly() -> None:
    app = outer()
    app.mount("weather", weather())
    async with client(app, LEGACY, elicitation=lambda p: ElicitResult(action="decline")) as c:
        assert (await c.call_tool("weather__ask")).data == "decline: None"
