"""A task belongs to all machines: it is listened to, asked for, answered and cancelled at any of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpearl import Context
from mcpearl.server.tasks.options import Tasks
from mcpearl.stores.errors import TOLD
from tests.deployment.machines import TAKES_TASKS, Machine, make_app, two_machines
from tests.redis_server import running
from tests.transports.raw_http import EVERYTHING, Raw, Response, modern, serving
from tests.waiting import eventually

CAN = "io.modelcontextprotocol/clientCapabilities"
META: dict[str, Any] = {CAN: {**EVERYTHING, **TAKES_TASKS[CAN]}}


@asynccontextmanager
async def both(kind: str) -> AsyncIterator[tuple[Machine, Machine, list[str]]]:
    """Two machines with a tool that asks, and one that waits; where the latter was cancelled is noted."""
    cancelled: list[str] = []
    async with two_machines(kind=kind) as (one, two):
        for name, machine in (("one", one), ("two", two)):

            @machine.app.tool(task=Tasks(required=True))
            async def greets(ctx: Context) -> str:
                "Ask for a name."
                answer = await ctx.elicit("Who?", {"type": "object", "properties": {}})
                return f"{answer.action} {answer.data}"

            @machine.app.tool(task=Tasks(required=True))
            async def waits(own: str = name) -> str:
                "Wait for ever."
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(own)
                    raise
                return "never"

        yield one, two, cancelled


async def asked(machine: Machine, method: str, params: dict[str, Any]) -> Any:
    return (await answer_of(machine.raw, method, params)).json["result"]


async def answer_of(raw: Raw, method: str, params: dict[str, Any]) -> Response:
    headers, body = modern(method, params, **META)
    if "taskId" in params:
        headers["Mcp-Name"] = params["taskId"]
    return await raw.post(body, headers)


async def heard(stream: Response, status: str) -> Any:
    """Return the first state of a task that has this status."""
    while True:
        message = await stream.next()
        found = message["params"]
        if message["method"] == "notifications/tasks" and found["status"] == status:
            return found


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_task_is_heard_of_and_answered_at_another_machine(kind: str) -> None:
    async with both(kind) as (one, two, _):
        task = (await asked(one, "tools/call", {"name": "greets", "arguments": {}}))["taskId"]
        wanted = {"notifications": {"taskIds": [task]}}
        headers, body = modern("subscriptions/listen", wanted, **META)
        stream = await two.raw.post(body, headers)
        (question,) = (await heard(stream, "input_required"))["inputRequests"]
        answers = {question: {"action": "accept", "content": {"name": "ann"}}}
        await asked(two, "tasks/update", {"taskId": task, "inputResponses": answers})
        done = await heard(stream, "completed")
        assert done["result"]["content"][0]["text"] == "accept {'name': 'ann'}"
        assert (await asked(two, "tasks/get", {"taskId": task}))["status"] == "completed"
        stream.close()


async def test_a_task_is_cancelled_from_another_machine() -> None:
    async with both("redis") as (one, two, cancelled):
        task = (await asked(one, "tools/call", {"name": "waits", "arguments": {}}))["taskId"]
        await asked(two, "tasks/cancel", {"taskId": task})
        await eventually(lambda: cancelled == ["one"])
        assert (await asked(two, "tasks/get", {"taskId": task}))["status"] == "cancelled"


async def test_while_the_store_is_away_clients_are_told_when_to_come_again() -> None:
    with running("redis") as redis:
        app = make_app(redis.url)

        @app.tool(task=Tasks(required=True))
        async def job() -> str:
            "Work as a task."
            return "done"

        async with serving(app) as raw:
            new = ("tools/call", {"name": "job", "arguments": {}})
            task = (await answer_of(raw, *new)).json["result"]["taskId"]
            redis.kill()
            for method, params in (new, ("tasks/get", {"taskId": task})):
                refused = await answer_of(raw, method, params)
                assert (refused.status, refused.headers["retry-after"]) == (503, "5"), method
                error = refused.json["error"]
                assert TOLD in error["message"] and error["data"] == {"retryAfter": 5}
            redis.start()

            async def is_back() -> bool:
                return "result" in (await answer_of(raw, *new)).json

            await eventually(is_back)
