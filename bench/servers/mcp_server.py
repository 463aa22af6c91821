"""The stdio server under measure, on the official Python SDK."""

from mcp.server import MCPServer

app = MCPServer("bench", version="1.0.0", log_level="ERROR")


@app.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool()
def add_sync(a: int, b: int) -> int:
    """Add two numbers, from a plain function."""
    return a + b


if __name__ == "__main__":
    app.run()
