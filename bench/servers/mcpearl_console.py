"""A server with or without a console: ``python mcpearl_console.py <port> off|<key of the console>``."""

import sys

from mcpearl import ConsoleOptions, Server

app = Server("bench", version="1.0.0")


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    console = False if sys.argv[2] == "off" else ConsoleOptions(key=sys.argv[2])
    app.run("http", port=int(sys.argv[1]), console=console)
