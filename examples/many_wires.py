"""One server on a TCP port, a Unix socket and a WebSocket at once, and a client for each.

python examples/many_wires.py
"""

import asyncio
import tempfile
from pathlib import Path

from mcpearl import Client, Context, Server, Tcp, Unix, WebSocket

app = Server("visitors", version="1.0.0")
visits: list[str] = []


@app.tool
async def visit(name: str, *, ctx: Context) -> str:
    """Sign the visitors' book."""
    visits.append(name)
    await ctx.progress(1, 1)
    return f"Welcome {name}, visitor number {len(visits)}."


async def call(name: str, address: str) -> None:
    """Call the server at one address."""
    async with Client(address) as client:
        result = await client.call_tool("visit", {"name": name})
        scheme = address.partition(":")[0]
        print(f"{scheme}: {result.structured_content}")


async def main() -> None:
    """Serve on three wires, call each of them, then stop."""
    with tempfile.TemporaryDirectory() as folder:
        unix = Unix(path=Path(folder) / "visitors.sock")
        async with (
            app.serving(Tcp(port=0)) as tcp_url,
            app.serving(unix) as unix_url,
            app.serving(WebSocket(port=0)) as ws_url,
        ):
            await call("Ada", tcp_url)
            await call("Grace", unix_url)
            await call("Barbara", ws_url)


if __name__ == "__main__":
    asyncio.run(main())
