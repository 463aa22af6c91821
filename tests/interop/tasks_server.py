"""The mcpearl server whose tools run as tasks, for the clients of others.

On stdio, or over HTTP at the port that `PORT` in the environment names.
"""

import asyncio
import os

from msgspec import Struct

from mcpearl import Context, McpError, Server
from mcpearl.server.tasks.options import Tasks

app = Server("tasks")
POLL = 0.1


class Name(Struct):
    """A form with one field."""

    name: str


@app.tool(task=Tasks(poll=POLL))
async def double(number: int, ctx: Context) -> int:
    """Double a number, slowly."""
    await ctx.progress(1, 2, "half way")
    await asyncio.sleep(0.3)
    return 2 * number


@app.tool(task="required")
async def greet(ctx: Context) -> str:
    """Ask for a name in the middle of the work."""
    form = await ctx.elicit("What is your name?", Name)
    return f"Hello, {form.data.name}!" if form.data else "Hello!"


@app.tool(task="required")
async def broken() -> str:
    """End in a protocol error."""
    raise McpError(-32050, "the machine is on fire")


@app.tool(task=Tasks(poll=POLL))
async def endless() -> str:
    """Run until it is cancelled."""
    await asyncio.Event().wait()
    return ""


if __name__ == "__main__":
    port = os.environ.get("PORT")
    if port is None:
        app.run()
    else:
        app.run("http", port=int(port))
