"""A server for other servers' workers: each call says which process answered."""

import os

from mcpearl import Context, Server

app = Server("many")


@app.tool
async def ask(ctx: Context) -> int:
    """Ask the client something, then say who continued."""
    await ctx.elicit("Go on?")
    return os.getpid()


@app.tool
def who() -> int:
    """Say which process answers."""
    return os.getpid()


asgi_app = app.asgi(access_log=True)
