"""A server on all wires that can be asked to kill parts of itself, and what is left of them.

Run as: server.py LOG HTTP_PORT TCP_PORT WS_PORT UNIX_PATH
"""

import asyncio
import os
import sys
import threading
import time

from mcpearl import Http, Isolate, Server, Stdio, Supervisor, Tcp, Unix, WebSocket
from tests.chaos.echoing import Log, add_echo

# More than any real server should restart: this one is killed for minutes.
assert Supervisor.__init__.__kwdefaults__ is not None
Supervisor.__init__.__kwdefaults__["restarts"] = 1_000_000

app = Server("chaos", "1.0", grace=1.0)
log = Log(sys.argv[1])
add_echo(app, log)


@app.background
async def ticker() -> None:
    while True:
        await asyncio.sleep(0.01)


@app.background(name="flaky", restart="transient")
async def flaky() -> None:
    await asyncio.sleep(0.2)
    raise RuntimeError("it fails by itself, too")


@app.tool(isolate=Isolate(processes=2))
def isolated(id: str, pause: float = 0.0) -> str:
    """Do the same in a process of its own."""
    log.note(id)
    time.sleep(pause)
    return id


@app.tool
async def paths() -> list[list[str]]:
    """Return the paths of all parts that can be killed."""
    found = [path for path, _ in app.tree().walk() if path[0] != "wires"]
    return [list(path) for path in found if not path[-1].startswith("process ")]


@app.tool
async def pid() -> int:
    return os.getpid()


@app.tool
async def kill(path: list[str]) -> bool:
    return app.parts.root.kill(*path)


@app.tool
async def tree() -> dict[str, str]:
    return {"/".join(path): node.state for path, node in app.tree().walk()}


@app.tool
async def census() -> dict[str, int]:
    """Count what a leak would make grow."""
    return {
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "connections": len(app.connections),
        "calls": app.core.counters()["calls_in_flight"],
        "names": len(app.names) + app.names.count("calls"),
    }


async def main() -> None:
    http, tcp, ws, path = sys.argv[2:]
    wires = (
        Http(port=int(http), websocket="/ws"),
        Tcp(port=int(tcp)),
        WebSocket(port=int(ws)),
        Unix(path=path),
    )
    # By itself, since what is said on it while it is killed cannot be said again.
    control = asyncio.create_task(app.serve(Stdio()))
    while app.tree().find("wires") is None:
        await asyncio.sleep(0.01)
    attacked = asyncio.create_task(app.serve(*wires))
    await asyncio.wait([control, attacked], return_when=asyncio.FIRST_COMPLETED)
    attacked.cancel()
    await asyncio.wait([control, attacked])
    control.result()


if __name__ == "__main__":
    asyncio.run(main())
