"""The server with tasks under measure, on FastMCP with its memory broker."""

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

app = FastMCP("bench", version="1.0.0")
app.add_extension(TasksExtension())


@app.tool(task=True)
async def add_task(a: int, b: int) -> int:
    """Add two numbers, as a task."""
    return a + b


if __name__ == "__main__":
    app.run(show_banner=False, log_level="ERROR")
