"""The HTTP server under measure, on mcpearl: ``python mcpearl_http.py <port> [option=value …]``."""

import json
import sys

from mcpearl_server import app

from mcpearl import Context

NOTE = "bench://note"


@app.tool
async def steps(count: int, ctx: Context) -> int:
    """Report every step."""
    for step in range(1, count + 1):
        await ctx.progress(step, count)
    return count


@app.resource(NOTE)
def note() -> str:
    """Return what the clients subscribe to."""
    return "news"


@app.tool
async def touch() -> str:
    """Notify every subscriber of the note."""
    app.notify_resource_updated(NOTE)
    return "notified"


if __name__ == "__main__":
    options = dict(option.split("=") for option in sys.argv[2:])
    app.run(
        "http",
        port=int(sys.argv[1]),
        **{name: json.loads(value) for name, value in options.items()},
    )
