"""A server for workers of ASGI servers, with its store in `MCPEARL_STORE`; a tool names its process."""

import os

from mcpearl import Context, Server

app = Server("shared")


@app.tool
def who() -> int:
    """Say which process answers."""
    return os.getpid()


@app.tool
async def ask(ctx: Context) -> str:
    """Ask the client."""
    return str((await ctx.elicit("Go on?")).action)


@app.tool
async def touch(name: str) -> str:
    """Change a resource."""
    app.notify_resource_updated(f"state://{name}")
    return "touched"


@app.resource("state://{name}")
def state(name: str) -> str:
    """A resource that clients follow."""
    return name


asgi_app = app.asgi()
