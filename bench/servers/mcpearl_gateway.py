"""The gateway under measure, on mcpearl: ``python mcpearl_gateway.py <stdio|one|many|url> <port>``."""

import sys
from pathlib import Path

from mcpearl import Gateway, bridge

SERVER = [sys.executable, str(Path(__file__).with_name("mcpearl_server.py"))]

if __name__ == "__main__":
    which, port = sys.argv[1:]
    if which in ("one", "many"):
        count = 20 if which == "many" else 1
        app = Gateway({f"s{number}": SERVER for number in range(count)})
    else:
        app = bridge(SERVER if which == "stdio" else which)
    app.run("http", port=int(port))
