"""A server with a console and several workers, run as a process of its own.

Its arguments are the port, the number of workers, the key of the console, and `--auth`.
"""

import asyncio
import logging
import os
import sys

from mcpearl import Context, Server, ToolError
from mcpearl.auth import StaticTokens
from mcpearl.console import watching
from mcpearl.server.serving.wires import ConsoleOptions

TOKEN = "a-token-of-ada-lovelace"
app = Server("crew", grace=2.0, auth=StaticTokens({TOKEN: "ada"}) if "--auth" in sys.argv else None)


@app.tool
async def where() -> int:
    """Which process answers."""
    return os.getpid()


@app.tool
async def broken() -> str:
    raise ToolError("it broke")


@app.tool
async def say(text: str) -> int:
    logging.getLogger("application").warning("%s", text)
    return os.getpid()


@app.tool
async def wait(ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.Event().wait()
    return "never"


@app.tool(task=True)
async def long() -> str:
    await asyncio.Event().wait()
    return "never"


@app.background
async def refresh() -> None:
    await asyncio.Event().wait()


if __name__ == "__main__":
    watching.EVERY = 0.2  # look at the server more often than people need it
    logging.basicConfig(level=logging.INFO)
    console = ConsoleOptions(key=sys.argv[3], payloads=True)
    app.run("http", port=int(sys.argv[1]), workers=int(sys.argv[2]), console=console)
