"""The HTTP server under measure, on FastMCP: ``python fastmcp_http.py <port> [option=value …]``."""

import json
import logging
import sys

import uvicorn
from fastmcp import Context
from fastmcp_server import app


@app.tool
async def steps(count: int, ctx: Context) -> int:
    """Report every step."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count)
    return count


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    given = dict(option.split("=") for option in sys.argv[2:])
    options = {name: json.loads(value) for name, value in given.items()}
    uvicorn.run(
        app.http_app(path="/mcp", **options),
        port=int(sys.argv[1]),
        log_level="error",
        access_log=False,
    )
