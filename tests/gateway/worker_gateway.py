"""A gateway with two workers, before an upstream of the legacy era."""

import os
import sys

from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import UpstreamSettings

if __name__ == "__main__":
    command = [sys.executable, sys.argv[2], "2025-11-25"]
    gateway = Gateway({"up": command}, upstreams=UpstreamSettings(patience=30.0))
    gateway.add_tool(lambda: str(os.getpid()), name="here")
    gateway.run("http", port=int(sys.argv[1]), workers=2)
