"""The proxy under measure, on FastMCP: ``python fastmcp_gateway.py <stdio|many|url> <port>``."""

import logging
import sys
from pathlib import Path

import uvicorn
from fastmcp.server.server import create_proxy

SERVER = {"command": sys.executable, "args": [str(Path(__file__).with_name("fastmcp_server.py"))]}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    which, port = sys.argv[1:]
    count = {"stdio": 1, "many": 20}.get(which)
    servers = {f"s{number}": SERVER for number in range(count or 0)}
    app = create_proxy({"mcpServers": servers} if count else which)
    uvicorn.run(app.http_app(path="/mcp"), port=int(port), log_level="error", access_log=False)
