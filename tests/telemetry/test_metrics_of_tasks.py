"""Tasks on the page of metrics: how many ended, and how."""

import asyncio

from mcpearl import Client, McpError, Server
from mcpearl.telemetry.prometheus import render
from tests.waiting import eventually


async def test_tasks_that_ended_are_counted_by_state() -> None:
    app = Server("long", telemetry=False)

    @app.tool(task=True)
    async def work(how: str) -> str:
        if how == "forever":
            await asyncio.Event().wait()
        if how == "badly":
            raise McpError(-1, "never")
        return "done"

    measuring = app.measure()

    async def counts() -> dict[str, float]:
        page = (await render(measuring.snapshot())).decode()
        found = [line.split() for line in page.splitlines() if "tasks_ended_total{" in line]
        return {name.split('"')[1]: float(number) for name, number in found}

    async def are(completed: int, failed: int, cancelled: int) -> bool:
        return await counts() == {
            "completed": completed,
            "failed": failed,
            "cancelled": cancelled,
        }

    async with Client(app, telemetry=False) as client:
        assert await are(0, 0, 0)
        await client.start_task("work", {"how": "well"})
        await eventually(lambda: are(1, 0, 0))
        await client.start_task("work", {"how": "badly"})
        await eventually(lambda: are(1, 1, 0))
        task = await client.start_task("work", {"how": "forever"})
        await task.cancel()
        await eventually(lambda: are(1, 1, 1))
