"""A server whose tools do what tools should not, for tests over real pipes."""

import asyncio
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import mcpearl.server.intake
from mcpearl import Context, Limits, Server

QUICK = "--quick" in sys.argv  # little patience at the end
SMALL = "--small" in sys.argv  # small limits
mcpearl.server.intake.STALL = 0.5

if "--cramped" in sys.argv:
    # No room for another thread's stack.
    threading.stack_size(64 * 1024 * 1024)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 48 * 1024 * 1024,) * 2)

if "--greets" in sys.argv:
    print("Welcome to the server!")

app = Server(
    "traps",
    grace=0.3 if QUICK else 10.0,
    keepalive=None,  # its driver answers no pings, and leaves it alone for long on a slow machine
    limits=Limits(max_in_flight=8, max_in_flight_hard=32) if SMALL else None,
)


@app.tool
def add(a: int, b: int) -> int:
    return a + b


@app.tool
async def add_async(a: int, b: int) -> int:
    return a + b


@app.tool
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@app.tool
def block(seconds: float) -> str:
    time.sleep(seconds)
    return "blocked"


@app.tool
async def block_loop(seconds: float) -> str:
    os.write(2, b"blocking\n")
    time.sleep(seconds)  # a mistake in an async function, and a common one
    return "blocked everyone"


@app.tool
async def stubborn() -> str:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


@app.tool
def hang() -> str:
    threading.Event().wait()
    return "never"


@app.tool
def big(size: int) -> str:
    return "x" * size


@app.tool
def prints() -> str:
    print("printed")
    sys.stdout.write("written\n")
    sys.stdout.flush()
    os.write(1, b"straight to descriptor 1\n")
    subprocess.run(["echo", "from a child"], check=True)
    return "printed"


@app.tool
def reads_stdin() -> str:
    return subprocess.run(["cat"], check=True, capture_output=True, text=True).stdout + "nothing"


@app.tool
def closes_stdout() -> str:
    os.close(1)
    return "closed"


@app.tool
def exits(how: str) -> str:
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "generator":
        raise GeneratorExit
    raise SystemExit(how)


@app.tool
async def exits_async() -> str:
    sys.exit(3)


@app.tool
async def floods(ctx: Context) -> str:
    number = 0
    while True:
        number += 1
        await ctx.progress(number)


@app.tool
async def asks(ctx: Context) -> str:
    return (await ctx.elicit("Go on?")).action


@app.tool
async def cleans_up(path: str) -> str:
    try:
        await asyncio.sleep(3600)
    finally:
        Path(path).write_text("cleaned")
    return "never"


if __name__ == "__main__":
    if "--asyncio" in sys.argv:
        asyncio.run(app.serve())
    else:
        app.run()
    if "--after" in sys.argv:
        print("after the run")  # on the real stdout again
