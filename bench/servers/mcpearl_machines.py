"""A server with a task that outlives its process: ``python mcpearl_machines.py <port> <mark>``.

The first process that runs the task leaves a mark and waits for ever; the next one finishes it.
"""

import asyncio
import sys
from pathlib import Path

from mcpearl import Server, Tasks

app = Server("machines")


@app.tool(task=Tasks(required=True, restart=True))
async def job() -> str:
    """Wait, or finish."""
    mark = Path(sys.argv[2])
    if not mark.exists():
        mark.touch()
        await asyncio.Event().wait()
    return "done"


if __name__ == "__main__":
    app.run("http", port=int(sys.argv[1]))
