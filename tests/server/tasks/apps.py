"""A server with task tools of every kind, and clients of both shapes of tasks."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from mcpearl import Context, McpError, Server, Tasks, ToolError
from tests.server.wire import EVERYTHING, LEGACY, MODERN, Wire
from tests.waiting import eventually

EXTENSION = "io.modelcontextprotocol/tasks"
WITH: dict[str, Any] = {**EVERYTHING, "extensions": {EXTENSION: {}}}
TERMINAL = ("completed", "failed", "cancelled")


@dataclass
class Name:
    name: str


class Gates:
    """Where tools wait until a test lets them go on."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.log: list[str] = []


def tasks_app(**options: Any) -> tuple[Server, Gates]:
    """A server with tools that run as tasks."""
    gates = Gates()
    options.setdefault("grace", 0.0)
    app = Server("tasks", **options)

    @app.tool
    async def plain(x: int = 1) -> int:
        return x

    @app.tool(task=True)
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool(task=True)
    def threaded(text: str) -> str:
        return text.upper()

    @app.tool(task=True)
    async def stream(count: int) -> AsyncIterator[str]:
        for number in range(count):
            yield f"{number} "

    @app.tool(task=True)
    def steps(count: int) -> Iterator[str]:
        for number in range(count):
            yield f"{number} "

    @app.tool(task="required")
    async def waits(ctx: Context) -> str:
        gates.log.append("began")
        try:
            await gates.open.wait()
        except asyncio.CancelledError:
            gates.log.append("cancelled")
            raise
        return f"waited as {ctx.task is not None}"

    @app.tool(task=True)
    async def fails() -> str:
        raise ToolError("it is broken")

    @app.tool(task=True)
    async def errs() -> str:
        raise McpError(-32050, "out of order", {"floor": 3})

    @app.tool(task=True)
    async def greets(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Name)
        return f"hello {answer.data.name if answer.accepted else answer.action}"

    @app.tool(task=True)
    async def asks_both(ctx: Context) -> str:
        first, second = await asyncio.gather(
            ctx.elicit("First?", Name, key="first"), ctx.elicit("Second?", Name, key="second")
        )
        return f"{first.data.name} and {second.data.name}"

    @app.tool(task=Tasks(after=math.inf))
    async def asks_first(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Name, key="who")
        became = await ctx.become_task()
        await gates.open.wait()
        return f"{answer.data.name} {became} {ctx.task is not None}"

    @app.tool(task=Tasks(after=0.05))
    async def perhaps(fast: bool) -> str:
        if not fast:
            await gates.open.wait()
        return "done"

    @app.tool(task=True)
    async def reports(ctx: Context) -> str:
        await ctx.progress(1, 3, "one third")
        await gates.open.wait()
        return "reported"

    return app, gates


def task_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The task that a call was answered with."""
    result: dict[str, Any] = answer["result"]
    if "task" in result:
        task: dict[str, Any] = result["task"]
        return task
    assert result["resultType"] == "task", result
    return result


async def start(client: Wire, name: str, arguments: dict[str, Any] | None = None) -> str:
    """Call a tool as a task, in the client's shape, and return the task's id."""
    params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
    if client.version != MODERN:
        params["task"] = {}
    answer = await client.ask("tools/call", params)
    assert "result" in answer, answer
    id: str = task_of(answer)["taskId"]
    return id


async def look(client: Wire, id: str) -> dict[str, Any]:
    """What `tasks/get` answers."""
    answer = await client.ask("tasks/get", {"taskId": id})
    assert "result" in answer, answer
    found: dict[str, Any] = answer["result"]
    return found


async def status(client: Wire, id: str, *expected: str) -> dict[str, Any]:
    """Wait until a task has one of these states."""

    async def reached() -> dict[str, Any] | None:
        task = await look(client, id)
        return task if task["status"] in expected else None

    found: dict[str, Any] = await eventually(reached)
    return found


async def outcome(client: Wire, id: str) -> dict[str, Any]:
    """Wait until a task is over and return the whole answer that has its result or error."""
    task = await status(client, id, *TERMINAL)
    if client.version == LEGACY:
        return await client.ask("tasks/result", {"taskId": id})  # type: ignore[no-any-return]
    return {member: task[member] for member in ("result", "error") if member in task}
