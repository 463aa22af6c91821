"""A FastMCP server with its tasks extension, run by the interpreter of FastMCP's environment."""

import asyncio
import os

from fastmcp import FastMCP  # type: ignore[import-not-found]
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found]

app = FastMCP("peer")
app.add_extension(TasksExtension())


@app.tool(task=True)
async def double(number: int) -> int:
    """Double a number, slowly."""
    await asyncio.sleep(0.2)
    return 2 * number


@app.tool(task=True)
async def broken() -> int:
    """Fail."""
    raise ValueError("no number")


@app.tool(task=True)
async def endless() -> str:
    """Run until it is cancelled."""
    await asyncio.sleep(3600)
    return ""


if __name__ == "__main__":
    port = os.environ.get("PORT")
    if port is None:
        app.run(show_banner=False)
    else:
        app.run(transport="http", host="127.0.0.1", port=int(port), show_banner=False)
