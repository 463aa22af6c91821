"""A server with limits: ``python mcpearl_limits.py stdio|<port> [rate] [shedding] [tcp]``."""

import sys
import time

from mcpearl import RateLimit, Server, Shedding

limits = sys.argv[2:]
app = Server(
    "bench",
    version="1.0.0",
    rate=RateLimit(1e9, per=1) if "rate" in limits else None,
    shedding=Shedding(lag=0.03) if "shedding" in limits else None,
)


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
async def work(a: int, b: int) -> int:
    """Add two numbers, with some effort: a millisecond of the processor's time."""
    until = time.thread_time() + 0.001
    while time.thread_time() < until:
        pass
    return a + b


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        app.run()
    else:
        app.run("tcp" if "tcp" in limits else "http", port=int(sys.argv[1]))
