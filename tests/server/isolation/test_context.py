"""What handlers do with their context, from an isolated process, in both eras."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Context, Depends, Isolate, Server, Tasks
from mcpearl.auth import Principal
from mcpearl.types import CreateMessageResult, ElicitResult, Root, TextContent
from tests.server.isolation.apps import talking
from tests.server.tasks.apps import WITH, outcome, task_of
from tests.server.wire import ERAS, LEGACY, MODERN, text_of, wire

ONE = Isolate(processes=1)


async def elicited(params: Any) -> ElicitResult:
    if params.mode == "url":
        return ElicitResult(action="accept")
    return ElicitResult(action="accept", content={"city": "Oslo"})


async def sampled(params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="a poem"), model="m")


async def roots() -> list[Root]:
    return [Root(uri="file:///srv")]


def found(result: Any) -> Any:
    """What a tool returned; its text, if it failed."""
    return result.text if result.is_error else result.structured_content["result"]


FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def asking(profile: Isolate = ONE) -> Server:
    app = Server("asking")

    @app.tool(isolate=profile)
    async def asks(ctx: Context) -> list[Any]:
        form = await ctx.elicit("Where to?", FORM)
        visit = await ctx.elicit_url("Log in", "https://example.com/login")
        poem = await ctx.sample("Write a poem")
        folders = await ctx.roots()
        assert isinstance(poem.content, TextContent)
        return [form.data, visit.action, poem.content.text, [each.uri for each in folders]]

    @app.tool(isolate=Isolate(processes=1, reuse=1000))
    def asks_plainly(ctx: Context) -> list[Any]:
        form = ctx.wait(ctx.elicit("Where to?", FORM))
        ctx.progress(1, 2)
        return [form.data, os.getpid()]

    return app


@pytest.mark.parametrize("version", ERAS)
async def test_every_question(version: str) -> None:
    async with Client(
        asking(), protocol=version, elicitation=elicited, sampling=sampled, roots=roots
    ) as client:
        answer = await client.call_tool("asks")
        assert found(answer) == [{"city": "Oslo"}, "accept", "a poem", ["file:///srv"]]


@pytest.mark.parametrize("version", ERAS)
async def test_a_plain_function_asks(version: str) -> None:
    async with Client(asking(), protocol=version, elicitation=elicited) as client:
        answer = await client.call_tool("asks_plainly")
        again = await client.call_tool("asks_plainly")
        assert found(answer)[0] == {"city": "Oslo"}
        # A round that ends leaves its process to the next call.
        assert found(answer)[1] == found(again)[1] != os.getpid()


async def test_questions_asked_together_leave_together() -> None:
    app = Server("asking")

    @app.tool(isolate=ONE)
    async def both(ctx: Context) -> list[Any]:
        first, second = await asyncio.gather(
            ctx.elicit("Where to?", FORM), ctx.elicit("Where from?", FORM)
        )
        return [first.data, second.data]

    async with wire(app, MODERN) as client:
        asked = await client.call("both")
        assert len(asked["result"]["inputRequests"]) == 2


@pytest.mark.parametrize("version", ERAS)
async def test_once(version: str, tmp_path: Path) -> None:
    app = Server("asking")
    done = tmp_path / "done"

    @app.tool(isolate=ONE)
    async def pays(ctx: Context) -> int:
        def pay() -> int:
            with done.open("a") as file:
                file.write("x")
            return 7

        paid: int = await ctx.once("pay", pay)
        await ctx.elicit("Sure?", FORM)
        return paid

    async with Client(app, protocol=version, elicitation=elicited) as client:
        assert (await client.call_tool("pays")).data == 7
        assert done.read_text() == "x"


@pytest.mark.parametrize("version", ERAS)
async def test_progress_and_logs_come_in_order_before_the_answer(version: str) -> None:
    async with wire(talking(), version) as client:
        more = {"io.modelcontextprotocol/logLevel": "debug"} if version == MODERN else {}
        id = client.request("tools/call", {"name": "reports", "arguments": {}}, token="t", **more)
        messages = [await client.next() for _ in range(5)]
        assert [each.get("method") for each in messages] == [
            *["notifications/progress"] * 3,
            "notifications/message",
            None,
        ]
        assert [each["params"]["progress"] for each in messages[:3]] == [1, 2, 3]
        assert messages[2]["params"]["message"] == "step 3"
        assert messages[3]["params"]["data"] == {"n": 1}
        assert messages[4]["id"] == id
        assert int(text_of(messages[4])) != os.getpid()


@pytest.mark.parametrize("version", ERAS)
async def test_a_plain_function_reports(version: str) -> None:
    app = Server("talking")

    @app.tool(isolate=ONE)
    def reports(ctx: Context) -> str:
        ctx.progress(1, 2, "half")
        ctx.warning("careful")
        return "done"

    @app.tool(isolate=ONE)
    def counts() -> Any:
        yield "a"
        yield "b"

    async with wire(app, version) as client:
        more = {"io.modelcontextprotocol/logLevel": "debug"} if version == MODERN else {}
        client.request("tools/call", {"name": "reports", "arguments": {}}, token="t", **more)
        messages = [await client.next() for _ in range(3)]
        assert messages[0]["params"]["message"] == "half"
        assert messages[1]["params"]["data"] == "careful"
        assert text_of(messages[2]) == "done"
        client.request("tools/call", {"name": "counts", "arguments": {}}, token="u")
        messages = [await client.next() for _ in range(3)]
        assert [each["params"]["message"] for each in messages[:2]] == ["a", "b"]
        assert text_of(messages[2]) == "ab"


@pytest.mark.parametrize("version", ERAS)
async def test_what_a_handler_knows(version: str) -> None:
    app = talking(lifespan=lifespan)

    @app.middleware
    async def leaves(ctx: Context, call_next: Any) -> Any:
        ctx.state["trace"] = {"id": 5}
        return await call_next()

    principal = Principal("ada", scopes=["read"], claims={"team": "x"})
    async with wire(app, version, principal=principal) as client:
        answer = await client.call("knows", x=1)
        told = answer["result"]["structuredContent"]
        assert told["client"] == "wire"
        assert told["version"] == version
        assert (told["subject"], told["claims"]) == ("ada", {"team": "x"})
        assert told["state"] == {"trace": {"id": 5}}
        assert told["meta"]
        assert told["id"] == answer["id"]
        # Entered in the process itself.
        assert told["lifespan"] != os.getpid()


@asynccontextmanager
async def lifespan(app: Server) -> AsyncIterator[int]:
    yield os.getpid()


async def test_values_of_a_session_are_kept_by_the_server() -> None:
    async with wire(talking(), MODERN, principal=Principal("ada")) as client:
        first = await client.call("keeps", {"value": 1})
        second = await client.call("keeps", {"value": 2})
        assert first["result"]["structuredContent"]["result"] == [None, ["value"]]
        assert second["result"]["structuredContent"]["result"] == [1, ["value"]]
    async with wire(talking(), MODERN) as client:
        assert "nothing can be kept" in text_of(await client.call("keeps", {"value": 1}))


async def test_a_resource_is_read_in_the_server() -> None:
    async with Client(talking()) as client:
        assert (await client.call_tool("reads")).data == f"read in {os.getpid()}"


async def test_middleware_sees_results_and_what_the_tool_left() -> None:
    app = Server("watched")
    seen: list[Any] = []

    @app.middleware
    async def watch(ctx: Context, call_next: Any) -> Any:
        ctx.state["socket"] = object()
        result = await call_next()
        seen.append((getattr(result, "content", None), ctx.state.get("left")))
        return result

    @app.tool(isolate=ONE)
    def leaves(ctx: Context) -> str:
        try:
            ctx.state["socket"]
        except KeyError as error:
            ctx.state["left"] = str(error)
        return "done"

    async with Client(app) as client:
        assert (await client.call_tool("leaves")).data == "done"
    ((content, left),) = [each for each in seen if each[1] is not None]
    assert content == [TextContent(text="done")]
    assert "no form that could be sent" in left


async def test_dependencies_are_made_in_the_process() -> None:
    app = Server("depending")

    async def where(ctx: Context) -> AsyncIterator[int]:
        yield os.getpid()

    @app.tool(isolate=ONE)
    def tells(pid: int = Depends(where)) -> list[int]:
        return [pid, os.getpid()]

    async with Client(app) as client:
        first, second = (await client.call_tool("tells")).data
        assert first == second != os.getpid()


async def test_a_result_of_its_own_keeps_its_meta() -> None:
    from mcpearl import ToolResult

    app = Server("whole")

    @app.tool(isolate=ONE)
    def whole(fails: bool) -> ToolResult:
        return ToolResult("text", structured_content={"rows": 3}, meta={"m": 1}, is_error=fails)

    for version in (LEGACY, MODERN):
        async with wire(app, version) as client:
            for fails in (False, True):
                result = (await client.call("whole", {"fails": fails}))["result"]
                assert result["_meta"]["m"] == 1
                assert result["structuredContent"] == {"rows": 3}
                assert result.get("isError", False) is fails
                assert ("resultType" in result) is (version == MODERN)


async def test_a_task() -> None:
    app = Server("tasks")

    @app.tool(isolate=ONE, task=True)
    async def works(ctx: Context) -> list[Any]:
        await ctx.once("step", lambda: 1)
        return [ctx.task is not None, os.getpid()]

    async with Client(app) as client:
        task = await client.start_task("works")
        result = await task.result()
        is_task, pid = found(result)
        assert is_task
        assert pid != os.getpid()


@pytest.mark.parametrize("tool", ["works", "works_async", "works_in_thread"])
async def test_a_call_that_becomes_a_task_knows_it(tool: str) -> None:
    app = Server("promoted", grace=0)
    alone, beside = Isolate(processes=1, reuse=7), Isolate(processes=1, reuse=8)

    @app.tool(isolate=alone, task=Tasks(after=0.02))
    def works(ctx: Context) -> str | None:
        return _as_task(ctx)

    @app.tool(isolate=beside, task=Tasks(after=0.02))
    async def works_async(ctx: Context) -> str | None:
        await ctx.progress(1)
        return _as_task(ctx)

    @app.tool(isolate=beside, task=Tasks(after=0.02))
    def works_in_thread(ctx: Context) -> str | None:
        return _as_task(ctx)

    async with wire(app, MODERN, WITH) as client:
        task = task_of(await client.call(tool))
        assert text_of(await outcome(client, task["taskId"])) == task["taskId"]


def _as_task(ctx: Context) -> str | None:
    deadline = time.monotonic() + 30
    while ctx.task is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return ctx.task


def leaving(folder: Path) -> Server:
    """A server whose tools leave something behind that uses their context once the next call runs."""
    app = Server("leaving")
    go, done = folder / "go", folder / "done"

    def wait_for(path: Path) -> None:
        while not path.exists():
            time.sleep(0.01)

    @app.tool(isolate=ONE)
    def leaves(ctx: Context) -> str:
        threading.Thread(target=later, args=(ctx,), daemon=True).start()
        return "left"

    @app.tool(isolate=Isolate(processes=1, reuse=1000))
    async def leaves_async(ctx: Context) -> str:
        left.append(asyncio.create_task(asyncio.to_thread(later, ctx)))
        return "left"

    left = []

    def later(ctx: Context) -> None:
        wait_for(go)
        ctx.info("a secret")
        ctx.progress(7)
        try:
            ctx.wait(ctx.sample("a secret"))
        except BaseException as error:
            done.write_text(type(error).__name__)

    @app.tool(isolate=ONE)
    def waits(ctx: Context) -> str:
        go.touch()
        wait_for(done)
        return done.read_text()

    @app.tool(isolate=Isolate(processes=1, reuse=1000))
    async def waits_async(ctx: Context) -> str:
        return await asyncio.to_thread(waits, ctx)

    return app


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("end", ["", "_async"], ids=["plain", "async"])
async def test_what_a_call_left_behind_does_not_speak_for_the_next(
    end: str, version: str, tmp_path: Path
) -> None:
    app = leaving(tmp_path)
    heard: list[Any] = []
    async with (
        Client(app, protocol=version, on_log=lambda _: None, sampling=sampled) as one,
        Client(app, protocol=version, on_log=heard.append, sampling=sampled) as other,
    ):
        await one.call_tool(f"leaves{end}", on_progress=lambda *_: None)
        result = await other.call_tool(f"waits{end}", on_progress=lambda *_: heard.append("p"))
        assert "CancelledError" in found(result)
        assert heard == []


async def test_threads_of_one_call_ask_at_the_same_time() -> None:
    app = Server("threads")

    @app.tool(isolate=ONE)
    def many(ctx: Context) -> list[str]:
        def read(number: int) -> str:
            ctx.progress(number)
            (content,) = ctx.wait(ctx.read_resource(f"memo://{number}"))
            return content.text or ""

        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(read, range(40)))

    @app.resource("memo://{number}")
    def memo(number: int) -> str:
        return f"memo {number}"

    async with Client(app) as client:
        for _ in range(3):
            result = await client.call_tool("many", on_progress=lambda *_: None)
            assert found(result) == [f"memo {number}" for number in range(40)]
