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

from mcpearl import Context, Keepalive, Limits, Server
from mcpearl.server.serving.wire import Stdio
from mcpearl.server.serving.wires import Http, Tcp, Unix, WebSocket
from mcpearl.types.tools import ToolAnnotations

KEEPALIVE = Keepalive(
    interval=float(os.environ.get("PING_INTERVAL", "30")),
    patience=float(os.environ.get("PING_PATIENCE", "10")),
)
LIMITS = Limits(max_outgoing=int(os.environ.get("MAX_OUTGOING", Limits().max_outgoing)))
STALL = {"stall_timeout": float(os.environ.get("STALL_TIMEOUT", "60"))}
HTTP = {
    "idle_timeout": float(os.environ.get("SESSION_IDLE", "1")),
    "stall_timeout": float(os.environ.get("HTTP_STALLED", "60")),
}
app = Server("faulty", grace=0.2, keepalive=KEEPALIVE, limits=LIMITS)
journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
blobs = asyncio.Event()


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
async def tick(key: str, times: int, ctx: Context, pause: float = 0.05, size: int = 0) -> str:
    """Report progress every twentieth of a second; how it ends leaves a trace."""
    try:
        for number in range(times):
            await asyncio.sleep(pause)
            await ctx.progress(number, message=os.urandom(size // 2).hex())
    except asyncio.CancelledError:
        os.write(journal, f"{key}-stopped\n".encode())
        raise
    os.write(journal, f"{key}-finished\n".encode())
    return key


@app.tool
async def blob(key: str, size: int) -> str:
    """Say much, as soon as somebody lets it."""
    os.write(journal, f"{key}\n".encode())
    await blobs.wait()
    return key + os.urandom(size // 2).hex()  # which no wire makes smaller than a half


@app.tool
async def release() -> str:
    """Let all wait no longer that are about to say much."""
    blobs.set()
    blobs.clear()
    return "released"


@app.resource("thing://{number}")
async def thing(number: int) -> str:
    """One of many."""
    return str(number)


@app.resource("wide://{text}")
async def wide(text: str) -> str:
    """One that takes long to tell of."""
    return text


@app.tool
async def touch(uri: str, times: int = 1) -> str:
    """Tell that a resource changed."""
    for _ in range(times):
        app.notify_resource_updated(uri)
    return uri


@app.tool
async def counts() -> dict[str, Any]:
    """What this process holds."""
    return {
        "pid": os.getpid(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(asyncio.all_tasks()),
        "connections": len(app.core.roster),
        "subscriptions": app.core.subscriptions.counts()["uris"],
    }


def wire(text: str) -> Any:
    name, _, place = text.partition("=")
    match name:
        case "tcp":
            return Tcp(port=int(place), **STALL)
        case "tls":
            port, certificate, key = place.split(",")
            return Tcp(port=int(port), certificate=certificate, key=key, **STALL)
        case "ws":
            times = KEEPALIVE.interval, KEEPALIVE.patience
            return WebSocket(
                port=int(place), ping_interval=times[0], ping_timeout=times[1], **STALL
            )
        case "unix":
            return Unix(path=place, **STALL)
        case "stdio":
            return Stdio()
        case "http":
            return Http(port=int(place), **HTTP)
    raise SystemExit(f"no wire {name!r}")


if __name__ == "__main__":
    app.run(*([wire(text) for text in sys.argv[2:]] or [Stdio()]))
