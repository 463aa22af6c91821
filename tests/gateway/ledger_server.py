"""An upstream that writes down what ran: `ledger_server.py VERSIONS LEDGER [PORT]`."""

import asyncio
import os
import sys

from mcpearl import Context, Server


def make(versions: tuple[str, ...], ledger: str) -> Server:
    app = Server("ledger", versions=versions)
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.tool
    async def note(id: str, pause: float = 0.0) -> str:
        os.write(file, f"{id}\n".encode())
        await asyncio.sleep(pause)
        return id

    @app.tool
    async def ask(ctx: Context, id: str) -> str:
        answer = await ctx.elicit("Sure?", bool)
        os.write(file, f"{id}\n".encode())
        return id if answer.data else "no"

    @app.tool
    async def flood(ctx: Context, id: str) -> str:
        os.write(file, f"{id}\n".encode())
        for number in range(2000):
            app.notify_resource_updated(f"note://{number}")
            await ctx.info("x" * 1000)
            await ctx.progress(number + 1)
        return id

    return app


if __name__ == "__main__":
    app = make(tuple(sys.argv[1].split(",")), sys.argv[2])
    if len(sys.argv) > 3:
        app.run("http", port=int(sys.argv[3]))
    else:
        app.run()
