"""A server with receipts under measure: ``python mcpearl_receipts.py stdio|<port> MODE FOLDER``."""

import sys

from mcpearl import Receipts, Server

wire, mode, folder = sys.argv[1:4]
receipts = None if mode == "off" else Receipts(folder, durable=mode == "durable")
app = Server("bench", version="1.0.0", receipts=receipts)


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    if wire == "stdio":
        app.run()
    else:
        app.run("http", port=int(wire))
