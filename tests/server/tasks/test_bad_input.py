"""What strangers and careless clients send about tasks: each gets a clear answer."""

import asyncio
import threading
from typing import Any

import pytest

from mcpearl import Context, Handler, Server, Tasks
from mcpearl.auth import Principal
from mcpearl.auth.principal import ANONYMOUS
from mcpearl.server.tasks.extension import TasksExtension
from mcpearl.server.tasks.options import TaskBounds
from mcpearl.stores.memory_tasks import MemoryTaskStore
from mcpearl.testing.clock import MovableClock
from mcpearl.types import CallToolResult, ListToolsResult, TextContent, Tool
from tests.server.tasks.apps import WITH, look, outcome, start, status, task_of, tasks_app
from tests.server.wire import LEGACY, MODERN, Wire, text_of, wire
from tests.waiting import eventually

BOTH = pytest.mark.parametrize("version", [LEGACY, MODERN])


async def refused(client: Wire, method: str, id: Any, **more: Any) -> dict[str, Any]:
    answer = await client.ask(method, {"taskId": id, **more})
    error: dict[str, Any] = answer["error"]
    return error


def methods(version: str) -> list[tuple[str, dict[str, Any]]]:
    if version == LEGACY:
        return [("tasks/get", {}), ("tasks/result", {}), ("tasks/cancel", {})]
    return [("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})]


# Ids


@BOTH
async def test_unknown_guessed_and_foreign_ids_look_the_same(version: str) -> None:
    app, _ = tasks_app()
    ann, bob = Principal("ann", issuer="i"), Principal("bob", issuer="i")
    async with (
        wire(app, version, WITH, ann) as hers,
        wire(app, version, WITH, bob) as his,
    ):
        id = await start(hers, "waits")
        for method, more in methods(version):
            foreign = await refused(his, method, id, **more)
            guessed = await refused(his, method, id[:-1] + "x", **more)
            assert foreign["code"] == guessed["code"] == -32602
            shape = (
                foreign["message"].replace(id, ""),
                guessed["message"].replace(id[:-1] + "x", ""),
            )
            assert shape[0] == shape[1]
            for wrong in ("", "x" * 100_000, 7, None, ["x"]):
                error = await refused(his, method, wrong, **more)
                assert error["code"] == -32602 and len(error["message"]) < 1000
        assert (await look(hers, id))["status"] == "working"


@BOTH
async def test_a_task_is_unknown_after_its_time(version: str, clock: MovableClock) -> None:
    app, _ = tasks_app()
    async with wire(app, version, WITH) as client:
        id = await start(client, "waits")
        done = await start(client, "add", {"a": 1, "b": 2})
        await status(client, done, "completed")
        waiting = client.request("tasks/result", {"taskId": id}) if version == LEGACY else None
        await clock.advance(3601.0)
        for each in (id, done):
            for method, more in methods(version):
                assert (await refused(client, method, each, **more))["code"] == -32602
        if waiting is not None:
            assert (await client.answer_to(waiting))["error"]["code"] == -32602
    extension = next(e for e in app._extensions if isinstance(e, TasksExtension))
    assert not extension.engine.runs


async def test_a_running_task_is_stopped_when_its_time_is_over(clock: MovableClock) -> None:
    app, gates = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        await start(client, "waits")
        await eventually(lambda: gates.log == ["began"])
        await clock.advance(3700.0)
        await eventually(lambda: gates.log == ["began", "cancelled"])


# Times to live


async def test_a_ttl_is_positive_and_bounded() -> None:
    app, _ = tasks_app()
    async with wire(app, LEGACY, WITH) as client:

        async def created(ttl: Any) -> dict[str, Any]:
            params = {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {"ttl": ttl}}
            answer: dict[str, Any] = await client.ask("tools/call", params)
            return answer

        for wrong in (0, -1, -(10**15), "x"):
            assert (await created(wrong))["error"]["code"] == -32602
        assert task_of(await created(365 * 86_400_000))["ttl"] == 86_400_000
        assert task_of(await created(10**15))["ttl"] == 86_400_000
        assert task_of(await created(None))["ttl"] == 3_600_000
        assert task_of(await created(1500))["ttl"] == 1500


# How many


@BOTH
async def test_ten_thousand_tasks_of_one_client(version: str) -> None:
    store = MemoryTaskStore(max_tasks=60, max_per_owner=50)
    app, gates = tasks_app(store=store)
    async with (
        wire(app, version, WITH, Principal("ann")) as greedy,
        wire(app, version, WITH, Principal("bob")) as other,
    ):
        task = {"task": {}} if version == LEGACY else {}
        params = {"name": "waits", "arguments": {}, **task}
        answers = [await greedy.ask("tools/call", params) for _ in range(10_000 // 100)]
        created = [answer for answer in answers if "result" in answer]
        assert len(created) == 50
        refusal = next(answer["error"] for answer in answers if "error" in answer)
        assert refusal["code"] == -32603 and "50 tasks" in refusal["message"]
        id = await start(other, "add", {"a": 1, "b": 2})
        assert text_of(await outcome(other, id)) == "3"
        gates.open.set()


async def test_lists_have_pages_and_bad_cursors_are_refused() -> None:
    app, _ = tasks_app()
    ann, bob = Principal("ann"), Principal("bob")
    async with wire(app, LEGACY, WITH, ann) as hers, wire(app, LEGACY, WITH, bob) as his:
        ids = [await start(hers, "add", {"a": 1, "b": n}) for n in range(130)]
        await start(his, "add", {"a": 1, "b": 2})
        first = (await hers.ask("tasks/list"))["result"]
        second = (await hers.ask("tasks/list", {"cursor": first["nextCursor"]}))["result"]
        assert [task["taskId"] for task in first["tasks"] + second["tasks"]] == ids
        assert "nextCursor" not in second
        assert (await hers.ask("tasks/list", {"cursor": "no"}))["error"]["code"] == -32602
        theirs = await his.ask("tasks/list", {"cursor": first["nextCursor"]})
        assert theirs["error"]["code"] == -32602


async def test_clients_that_cannot_be_told_apart_have_no_list() -> None:
    app, _ = tasks_app()
    async with wire(app, LEGACY, WITH, ANONYMOUS) as client:
        id = await start(client, "add", {"a": 1, "b": 2})
        assert (await client.ask("tasks/list"))["error"]["code"] == -32601
        assert text_of(await outcome(client, id)) == "3"
    async with app.running(), wire(app, MODERN, WITH, ANONYMOUS) as client:
        client.version = LEGACY
        answer = await client.ask(
            "initialize",
            {
                "protocolVersion": LEGACY,
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            },
        )
        assert "list" not in answer["result"]["capabilities"]["tasks"]


# What is stored


def bounded(**bounds: Any) -> Server:
    app = Server("x", grace=0, extensions=[TasksExtension(TaskBounds(**bounds))])

    @app.tool(task=True)
    async def large(size: int) -> str:
        return "x" * size

    @app.tool(task=True)
    async def keeps(size: int, ctx: Context) -> str:
        await ctx.once("large", lambda: "x" * size)
        return "kept"

    @app.tool(task=True)
    async def unfit() -> Any:
        return CallToolResult(content=[TextContent(text="x")], structured_content=object())

    return app


@BOTH
async def test_a_result_over_the_bound_fails_the_task(version: str) -> None:
    async with wire(bounded(max_result=10_000), version, WITH) as client:
        id = await start(client, "large", {"size": 20_000})
        await status(client, id, "failed")
        error = (await outcome(client, id))["error"]
        assert error["code"] == -32603 and "over the 10000" in error["message"]
        id = await start(client, "large", {"size": 1000})
        assert len(text_of(await outcome(client, id))) == 1000


@BOTH
async def test_a_journal_over_the_bound_fails_the_step(version: str) -> None:
    async with wire(bounded(max_journal=10_000), version, WITH) as client:
        id = await start(client, "keeps", {"size": 20_000})
        done = await outcome(client, id)
        assert done["result"]["isError"] is True and "max_journal" in text_of(done)


@BOTH
async def test_a_result_without_a_json_form(version: str) -> None:
    async with wire(bounded(), version, WITH) as client:
        done = await outcome(client, await start(client, "unfit"))
        assert done["result"]["isError"] is True and "no JSON form" in text_of(done)


# Cancelling


@BOTH
async def test_a_tool_that_ignores_cancellation_stays_cancelled(version: str) -> None:
    app = Server("x", grace=0)
    release, ended = asyncio.Event(), asyncio.Event()
    blocked, freed = threading.Event(), threading.Event()

    @app.tool(task=True)
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass
        ended.set()
        return "done all the same"

    @app.tool(task=True)
    def in_a_thread() -> str:
        blocked.set()
        freed.wait(30)
        return "done in a thread"

    async with wire(app, version, WITH) as client:
        ids = [await start(client, "stubborn"), await start(client, "in_a_thread")]
        await eventually(blocked.is_set)
        for id in ids:
            assert "result" in await client.ask("tasks/cancel", {"taskId": id})
            assert (await look(client, id))["status"] == "cancelled"
        release.set()
        freed.set()
        await ended.wait()
        for id in ids:
            assert (await look(client, id))["status"] == "cancelled"


@BOTH
async def test_cancelling_after_the_end(version: str) -> None:
    app, _ = tasks_app()
    async with wire(app, version, WITH) as client:
        id = await start(client, "add", {"a": 1, "b": 2})
        await status(client, id, "completed")
        answer = await client.ask("tasks/cancel", {"taskId": id})
        if version == LEGACY:
            assert answer["error"]["code"] == -32602
            assert "completed already" in answer["error"]["message"]
        else:
            assert answer["result"]["resultType"] == "complete"
        assert (await look(client, id))["status"] == "completed"


async def test_updates_after_the_end_and_of_nothing_are_acknowledged() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "add", {"a": 1, "b": 2})
        await status(client, id, "completed")
        answers = {"elicitation-1": {"action": "accept", "content": {}}}
        for responses in ({}, answers):
            params = {"taskId": id, "inputResponses": responses}
            answer = await client.ask("tasks/update", params)
            assert answer["result"]["resultType"] == "complete"
        missing = await client.ask("tasks/update", {"taskId": id})
        assert missing["error"]["code"] == -32602


# Options


@pytest.mark.parametrize(
    "options",
    [
        *({"ttl": 0}, {"ttl": -1.0}, {"ttl": float("nan")}, {"ttl": 10.0, "max_ttl": 5.0}),
        *({"poll": 0}, {"after": -1.0}, {"park": float("inf")}),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Tasks"):
        Tasks(**options)


def test_an_option_that_is_not_one() -> None:
    app = Server("x")
    with pytest.raises(TypeError, match="`task` must be"):
        app.tool(task="sometimes")(lambda: None)  # type: ignore[arg-type]


# Handlers of one's own


@BOTH
async def test_a_handler_class_says_which_tools_are_tasks(version: str) -> None:
    class Own(Handler):
        async def list_tools(self, cursor: str | None, ctx: Context) -> ListToolsResult:
            return ListToolsResult(tools=[Tool(name="own", input_schema={"type": "object"})])

        async def call_tool(self, params: Any, ctx: Context) -> CallToolResult:
            return CallToolResult(content=[TextContent(text=f"{params.name} {bool(ctx.task)}")])

        def tasks_of(self, name: str) -> Tasks | None:
            return Tasks() if name == "own" else None

    async with wire(Server("x", handler=Own(), grace=0), version, WITH) as client:
        assert text_of(await outcome(client, await start(client, "own"))) == "own True"
        assert text_of(await client.call("other")) == "other False"
