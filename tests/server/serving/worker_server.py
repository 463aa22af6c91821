"""A server for several workers, run as a process of its own: `worker_server.py PORT WORKERS`."""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mcpearl import Context, RateLimit, Server

app = Server("crew", grace=10.0)
if "--rated" in sys.argv:
    app = Server("crew", rate=RateLimit(15, per=10_000))
if "--broken" in sys.argv:
    app = Server("crew", lifespan=lambda _: 1 / 0)  # type: ignore[arg-type]


@app.tool
async def who() -> int:
    """Which process answers."""
    return os.getpid()


@app.tool
async def wires() -> list[str]:
    found = app.tree().find("wires")
    return [] if found is None else [each.name for each in found.children]


@app.tool(rate=RateLimit(10, per=10_000))
async def rare() -> int:
    return os.getpid()


@app.tool
async def count(to: int, ctx: Context) -> int:
    for number in range(to):
        await ctx.progress(number + 1, to)
        await asyncio.sleep(0.01)
    return os.getpid()


@app.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which?", {"type": "object", "properties": {"a": {"type": "string"}}})
    return f"{answer.action} {os.getpid()}"


@app.tool
async def slow(seconds: float, ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(seconds)
    return "done"


@app.resource("test://thing")
def thing() -> str:
    return "thing"


@app.tool
async def touch() -> int:
    app.notify_resource_updated("test://thing")
    return os.getpid()


if __name__ == "__main__":
    Path(f"{sys.argv[3]}").write_text(str(os.getpid()))
    options: dict[str, Any] = {"max_streams": 1} if "--one-stream" in sys.argv else {}
    if "--short-keep-alive" in sys.argv:
        options["keep_alive"] = 0.5
    if "--show-tree" in sys.argv:  # in a file, again and again
        parent, shown = os.getpid(), Path(sys.argv[3]).with_name("tree")

        def show() -> None:
            beside = shown.with_suffix(".new")
            beside.write_text(str(app.tree()))
            beside.replace(shown)

        def show_on() -> None:
            while os.getpid() == parent:
                show()
                time.sleep(0.05)

        show()  # here, so that a worker is not forked while the thread imports something
        threading.Thread(target=show_on, daemon=True).start()
    if "--follow-tree" in sys.argv:  # in a loop of its own: the parent has none
        changes, followed = app.tree_changes(), Path(sys.argv[3]).with_name("changes")

        async def follow() -> None:
            async for change in changes:
                with followed.open("a") as file:
                    file.write(f"{os.getpid()} {change.path} {change.state} {change.error}\n")

        threading.Thread(target=lambda: asyncio.run(follow()), daemon=True).start()
    app.run("http", port=int(sys.argv[1]), workers=int(sys.argv[2]), http_sse=True, **options)
