"""The HTTP server under measure, on the official SDK: ``python mcp_http.py <port> [option=value …]``.

Without an access log, and without a limit on sessions, which the benchmark would reach.
"""

import json
import logging
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context
from mcp_server import app


@app.tool()
async def steps(count: int, ctx: Context[Any, Any]) -> int:
    """Report every step."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count)
    return count


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    given = dict(option.split("=") for option in sys.argv[2:])
    options = {name: json.loads(value) for name, value in given.items()}
    uvicorn.run(
        app.streamable_http_app(max_sessions=None, **options),
        port=int(sys.argv[1]),
        log_level="error",
        access_log=False,
    )
