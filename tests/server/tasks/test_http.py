"""Tasks over HTTP: each request on a connection of its own, headers that name the task."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from mcpearl import Server, Tasks
from tests.ports import free_port
from tests.server.tasks.apps import tasks_app
from tests.server.tasks.http import Caller
from tests.waiting import eventually


@asynccontextmanager
async def served(app: Server) -> AsyncIterator[Caller]:
    port = free_port()
    serving = asyncio.create_task(app.serve("http", port=port))
    caller = Caller(port)
    try:
        await eventually(caller.is_up)
        yield caller
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def test_a_call_that_takes_long_is_answered_with_a_task() -> None:
    app, gates = tasks_app()
    async with served(app) as caller:
        quick = await caller.call("perhaps", {"fast": True})
        assert quick["content"][0]["text"] == "done" and quick["resultType"] == "complete"
        slow = await caller.call("perhaps", {"fast": False})
        assert slow["resultType"] == "task"
        assert (await caller.look(slow["taskId"]))["status"] == "working"
        gates.open.set()

        async def is_done() -> bool:
            return (await caller.look(slow["taskId"]))["status"] == "completed"

        await eventually(is_done)


async def test_a_client_that_leaves_before_it_is_a_task_ends_its_call() -> None:
    app = Server("x", grace=0)
    log: list[str] = []

    @app.tool(task=Tasks(after=3600.0))
    async def waits() -> None:
        log.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            log.append("ended")

    async with served(app) as caller:
        calling = asyncio.create_task(caller.call("waits", {}))
        await eventually(lambda: log == ["began"])
        calling.cancel()
        await eventually(lambda: log == ["began", "ended"])


async def test_the_name_header_must_be_the_task() -> None:
    app, gates = tasks_app()
    async with served(app) as caller:
        id = (await caller.call("waits", {}))["taskId"]
        for method in ("tasks/get", "tasks/cancel"):
            wrong = await caller.ask(method, {"taskId": id}, "another")
            assert wrong["error"]["code"] == -32020, wrong
        wrong = await caller.ask("tasks/update", {"taskId": id, "inputResponses": {}}, "another")
        assert wrong["error"]["code"] == -32020
        assert (await caller.look(id))["status"] == "working"
        gates.open.set()
