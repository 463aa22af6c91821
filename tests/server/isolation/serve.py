"""Serves the tools of `apps` on a wire, in a process of its own: `python -m … stdio`."""

import asyncio
import os
import sys
from pathlib import Path

from mcpearl import Isolate
from tests.server.isolation.apps import make


def main() -> None:
    profile = Isolate(processes=2)
    app = make(profile, grace=1.0)
    forks: list[
        tuple[int, bool]
    ] = []  # those that led to the process: threads, and is there a loop

    def forking() -> None:
        threads = len(list(Path("/proc/self/task").iterdir()))
        forks.append((threads, asyncio._get_running_loop() is not None))

    os.register_at_fork(before=forking)

    @app.tool(isolate=profile)
    def forked_from() -> list[tuple[int, bool]]:
        return forks

    wire, *port = sys.argv[1:]
    if wire == "stdio":
        app.run()
    elif wire == "workers":
        app.run("http", port=int(port[0]), workers=2)
    else:
        app.run(wire, port=int(port[0]))


if __name__ == "__main__":
    main()
