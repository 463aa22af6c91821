"""A server with receipts, to be killed: `python -m tests.receipts.kill_server FOLDER [durable]`."""

import asyncio
import sys

from mcpearl import Server
from mcpearl.receipts.receipts import Receipts

app = Server("killed", receipts=Receipts(sys.argv[1], durable=sys.argv[2:3] == ["durable"]))


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
async def wait() -> None:
    """Never end."""
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[2:3] == ["workers"]:
        app.run("http", port=int(sys.argv[3]), workers=3)
    else:
        app.run()
