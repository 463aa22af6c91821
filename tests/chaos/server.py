"""A server on all wires, with all it can have, that can be asked to kill parts of itself.

Run as: server.py SETTINGS, a JSON object: `log`, `http`, `tcp`, `ws`, `unix`, `store`, `receipts`, `far`.
"""

import asyncio
import faulthandler
import json
import os
import signal
import sys
import threading
import time

from mcpearl import Http, Isolate, Receipts, Server, Stdio, Supervisor, Tcp, Telemetry, Unix
from mcpearl import WebSocket as WebSocketWire
from tests.chaos.echoing import Log, add_echo

# More than any real server should restart: this one is killed for minutes.
assert Supervisor.__init__.__kwdefaults__ is not None
Supervisor.__init__.__kwdefaults__["restarts"] = 1_000_000

faulthandler.register(signal.SIGUSR1)
settings = json.loads(sys.argv[1])
app = Server(
    "chaos",
    "1.0",
    grace=1.0,
    store=settings["store"],
    receipts=Receipts(settings["receipts"], on_full="continue"),  # what is asked of it, too
    telemetry=Telemetry(),
    blocked_after=30.0,
)
log = Log(settings["log"])
add_echo(app, log)
app.mount("far", settings["far"])
app.mount("near", [sys.executable, "-m", "tests.chaos.echoing", settings["log"]])


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


@app.tool(task=True)
async def task(id: str, pause: float = 0.0) -> str:
    """Do the same as a task."""
    log.note(id)
    await asyncio.sleep(pause)
    return id


@app.tool
async def pid() -> int:
    return os.getpid()


@app.tool
async def kill(path: list[str]) -> bool:
    return app.parts.kill(*path)


@app.tool
async def tree() -> dict[str, str]:
    return {"/".join(path): node.state for path, node in app.tree().walk()}


@app.tool
async def paths() -> list[list[str]]:
    return [list(path) for path, _ in app.tree().walk()]


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
        "task runs": app.names.count("task"),
    }


async def main() -> None:
    wires = (
        Http(port=settings["http"], websocket="/ws"),
        Tcp(port=settings["tcp"]),
        WebSocketWire(port=settings["ws"]),
        Unix(path=settings["unix"]),
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
