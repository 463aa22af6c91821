"""The tool that all servers under attack have, and a server with nothing else.

Run as: echoing.py LOG [PORT], on stdio or with two workers behind a port.
"""

import asyncio
import os
import sys

from mcpearl import Server


class Log:
    """Notes every execution in a file, which processes that are forked from this one note in as well."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, id: str) -> None:
        """Note that a call was begun."""
        os.write(self._file, f"{id}\n".encode())


def add_echo(app: Server, log: Log) -> None:
    """Add a tool that says what was said, and is found by name meanwhile."""

    @app.tool
    async def echo(id: str, pause: float = 0.0) -> str:
        log.note(id)
        task = asyncio.current_task()
        app.names.hold(("call", id), task)
        app.names.mark(task, "calls")
        if pause:
            await asyncio.sleep(pause)
        return id


if __name__ == "__main__":
    app = Server("echoing", grace=1.0)
    add_echo(app, Log(sys.argv[1]))
    if len(sys.argv) > 2:
        app.run("http", port=int(sys.argv[2]), workers=2)
    else:
        app.run()
