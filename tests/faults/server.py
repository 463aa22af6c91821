"""A server for the fault tests, on every wire at once: its calls leave a trace, and it counts itself.

    python server.py JOURNAL tcp=PORT unix=PATH http=PORT …

Without wires it serves stdio. Each call of `charge` and `put` appends its key to the journal before
anything else happens, so that what ran is known even of a server that was killed.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcpearl import Context, Keepalive, Server
from mcpearl.server.wires import Http, Stdio, Tcp, Unix, WebSocket
from mcpearl.types.tools import ToolAnnotations

KEEPALIVE = Keepalive(
    interval=float(os.environ.get("PING_INTERVAL", "30")),
    patience=float(os.environ.get("PING_PATIENCE", "10")),
)
app = Server("faulty", grace=0.2, keepalive=KEEPALIVE)
journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.tool
async def charge(key: str, seconds: float = 0) -> str:
    """Do what must not be done twice."""
    os.write(journal, f"{key}\n".encode())
    await asyncio.sleep(seconds)
    return key


@app.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def put(key: str, seconds: float = 0) -> str:
    """Do what may be done again."""
    os.write(journal, f"{key}\n".encode())
    await asyncio.sleep(seconds)
    return key


@app.tool
async def tick(key: str, times: int, ctx: Context) -> str:
    """Report progress every twentieth of a second; being stopped leaves a trace."""
    try:
        for number in range(times):
            await asyncio.sleep(0.05)
            await ctx.progress(number)
    except asyncio.CancelledError:
        os.write(journal, f"{key}-stopped\n".encode())
        raise
    return key


@app.tool
async def blob(size: int) -> str:
    """Say much."""
    return "x" * size


@app.resource("thing://{number}")
async def thing(number: int) -> str:
    """One of many."""
    return str(number)


@app.tool
async def touch(uri: str) -> str:
    """Tell that a resource changed."""
    app.notify_resource_updated(uri)
    return uri


@app.tool
async def counts() -> dict[str, Any]:
    """What this process holds."""
    return {
        "pid": os.getpid(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(asyncio.all_tasks()),
        "connections": len(app.connections),
        "subscriptions": app.subscriptions.counts()["uris"],
    }


def wire(text: str) -> Any:
    name, _, place = text.partition("=")
    match name:
        case "tcp":
            return Tcp(port=int(place))
        case "tls":
            port, certificate, key = place.split(",")
            return Tcp(port=int(port), certificate=certificate, key=key)
        case "ws":
            times = KEEPALIVE.interval, KEEPALIVE.patience
            return WebSocket(port=int(place), ping_interval=times[0], ping_timeout=times[1])
        case "unix":
            return Unix(path=place)
        case "http":
            return Http(port=int(place), idle_timeout=float(os.environ.get("SESSION_IDLE", "1")))
    raise SystemExit(f"no wire {name!r}")


if __name__ == "__main__":
    app.run(*([wire(text) for text in sys.argv[2:]] or [Stdio()]))
