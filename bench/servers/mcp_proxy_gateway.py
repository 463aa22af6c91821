"""The proxy under measure, mcp-proxy: ``python mcp_proxy_gateway.py <python> <port>``.

Its server is mcpearl's on stdio, which runs on the given Python: mcp-proxy has an environment of its own.
"""

import sys
from pathlib import Path

from mcp_proxy.__main__ import main

if __name__ == "__main__":
    python, port = sys.argv[1:]
    server = str(Path(__file__).with_name("mcpearl_server.py"))
    sys.argv = ["mcp-proxy", "--port", port, "--log-level", "ERROR", "--", python, server]
    main()
