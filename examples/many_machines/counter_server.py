"""A server for many machines: `MCPEARL_STORE=redis://… python counter_server.py`."""

import os

from mcpearl import Context, Server

app = Server("counter")


@app.tool
async def whose_turn(ctx: Context) -> str:
    """Ask the client, and say which process asked."""
    answer = await ctx.elicit("Go on?")
    return f"{answer.action}, says process {os.getpid()}"


@app.resource("counter://{name}")
def counter(name: str) -> str:
    """Read a counter that is always at zero."""
    return f"{name}: 0"


if __name__ == "__main__":
    app.run("http", host="0.0.0.0", port=8000, workers=2, health="/health", drain_delay=5)
