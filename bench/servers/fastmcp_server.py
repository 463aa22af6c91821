"""The stdio server under measure, on FastMCP."""

from fastmcp import FastMCP

app = FastMCP("bench", version="1.0.0")


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
def add_sync(a: int, b: int) -> int:
    """Add two numbers, from a plain function."""
    return a + b


if __name__ == "__main__":
    app.run(show_banner=False, log_level="ERROR")
