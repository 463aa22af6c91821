"""Calls that become tasks while their tool runs."""

import asyncio
import gc
from typing import Any

import pytest

from mcpearl import Context, Server, Tasks
from mcpearl.server.dispatch import Next
from mcpearl.server.tasks.promotion import Candidate
from mcpearl.types import CallToolResult, TextContent
from tests.server.tasks.apps import WITH, look, outcome, status, task_of
from tests.server.wire import MODERN, text_of, wire
from tests.waiting import eventually


async def test_a_tool_with_little_time_is_seen_beside_one_that_has_much() -> None:
    app = Server("x", grace=0)
    gate = asyncio.Event()

    @app.tool(task=Tasks(after=3600.0))
    async def patient() -> str:
        await gate.wait()
        return "patient"

    @app.tool(task=Tasks(after=0.02))
    async def hasty() -> str:
        await gate.wait()
        return "hasty"

    async with wire(app, MODERN, WITH) as client:
        waiting = client.request("tools/call", {"name": "patient", "arguments": {}})
        tasks = [task_of(await client.call("hasty")) for _ in range(2)]
        gate.set()
        assert text_of(await client.answer_to(waiting)) == "patient"
        for task in tasks:
            assert text_of(await outcome(client, task["taskId"])) == "hasty"


def candidates() -> int:
    return sum(type(each) is Candidate for each in gc.get_objects())


@pytest.mark.parametrize("ending", ["returns", "cancelled"])
async def test_a_call_that_never_becomes_a_task_leaves_nothing_behind(ending: str) -> None:
    app = Server("x", grace=0)
    gate = asyncio.Event()

    @app.tool(task=Tasks(after=3600.0))
    async def work() -> str:
        await gate.wait()
        return "done"

    async with wire(app, MODERN, WITH) as client:
        gc.collect()
        gc.disable()
        try:
            request = client.request("tools/call", {"name": "work", "arguments": {}})
            await eventually(lambda: candidates() == 1)
            if ending == "cancelled":
                client.cancel(request)
            else:
                gate.set()
                await client.answer_to(request)
            await eventually(lambda: candidates() == 0)
        finally:
            gc.enable()


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
async def test_a_tool_that_fails_as_a_task_ends_it(error: BaseException) -> None:
    app = Server("x", grace=0)
    gate = asyncio.Event()

    @app.tool(task=Tasks(after=0.0))
    async def work() -> str:
        await gate.wait()
        raise error

    async with wire(app, MODERN, WITH) as client:
        id = task_of(await client.call("work"))["taskId"]
        assert (await look(client, id))["status"] == "working"
        gate.set()
        result = (await status(client, id, "completed"))["result"]
        assert result["isError"] and (str(error) or "work") in result["content"][0]["text"]


async def test_middleware_sees_the_result_of_a_call_that_became_a_task() -> None:
    app = Server("x", grace=0)
    gate = asyncio.Event()

    @app.middleware
    async def stamp(ctx: Context, call_next: Next) -> Any:
        answer = await call_next()
        if isinstance(answer, CallToolResult):
            answer.content.append(TextContent(text="stamped"))
        return answer

    @app.tool(task=Tasks(after=0.0))
    async def work() -> str:
        await gate.wait()
        return "done"

    async with wire(app, MODERN, WITH) as client:
        id = task_of(await client.call("work"))["taskId"]
        gate.set()
        result = (await status(client, id, "completed"))["result"]
        assert [block["text"] for block in result["content"]] == ["done", "stamped"]
