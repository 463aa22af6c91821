"""The server with tasks under measure, on mcpearl; the argument is the address of a store."""

import sys
from dataclasses import dataclass

from mcpearl import Context, Server, Tasks
from mcpearl.server.tasks.extension import TasksExtension
from mcpearl.server.tasks.options import TaskBounds

app = Server(
    "bench",
    version="1.0.0",
    store=sys.argv[1] if len(sys.argv) > 1 else None,
    state_keys=[bytes(32)],
    extensions=[TasksExtension(TaskBounds(max_running=10_000))],
)


@dataclass
class Name:
    """A form."""

    name: str


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool(task=True)
async def add_task(a: int, b: int) -> int:
    """Add two numbers, as a task."""
    return a + b


@app.tool(task=Tasks(after=5.0))
async def add_after(a: int, b: int) -> int:
    """Add two numbers, as a task if that takes long."""
    return a + b


@app.tool(task=True)
async def asks(a: int, b: int, ctx: Context) -> str:
    """Wait for input."""
    answer = await ctx.elicit("Who?", Name)
    return answer.action


if __name__ == "__main__":
    app.run()
